"""Servers shared by the contract suites: our Cloud TPU, and those that nobody here wrote."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts import firestore_emulator
from tests.contracts.google_server import GoogleServer, healthy
from tests.emulator.tpu_rig import PROJECT, Cloud
from tpujob.adapters.cloud_tpu.slices import CloudTpuSlices


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.stop()


@pytest.fixture
def slices(cloud: Cloud) -> Iterator[CloudTpuSlices]:
    made = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address)
    yield made
    made.close()


@pytest.fixture
def google() -> Iterator[GoogleServer]:
    """Google's other APIs, of a project in which all is well."""
    server = healthy()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def firestore_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Google's emulator, one for all workers of a test run."""
    jar = firestore_emulator.jar()
    if jar is None:
        pytest.skip(firestore_emulator.MISSING)
    folder = _shared(tmp_path_factory)
    folder.mkdir(exist_ok=True)
    with firestore_emulator.emulator(folder, jar) as endpoint:
        yield endpoint


def _shared(factory: pytest.TempPathFactory) -> Path:
    """Each worker has a folder of its own below that of the whole run."""
    own = factory.getbasetemp()
    return (own.parent if own.name.startswith("popen-") else own) / "firestore"


@pytest.fixture
def firestore_place(firestore_endpoint: str) -> str:
    """An empty database for one test."""
    return f"{firestore_endpoint}/test-{uuid.uuid4().hex[:12]}"
