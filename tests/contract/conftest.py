"""Servers shared by the contract suites: our Cloud TPU, and those of other projects."""

from collections.abc import Iterator

import pytest

from tests.contract.hosts.secret_manager import SecretServer
from tests.support.firestore_emulator import firestore_endpoint, firestore_place
from tests.support.google_server import GoogleServer, healthy
from tests.support.tpu_rig import PROJECT, Cloud
from tpujob.adapters.cloud_tpu import CloudTpuSlices

__all__ = ["firestore_endpoint", "firestore_place"]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.stop()


@pytest.fixture
def secret_server() -> Iterator[SecretServer]:
    with SecretServer() as server:
        yield server


@pytest.fixture
def slices(cloud: Cloud) -> Iterator[CloudTpuSlices]:
    made = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address)
    yield made
    made.close()


@pytest.fixture
def google() -> Iterator[GoogleServer]:
    """Google's other APIs, of a project in which all passed."""
    with healthy() as server:
        yield server
