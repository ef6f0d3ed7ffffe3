"""An emulated Cloud Storage of each test's own, Google's client of it, and a bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.cloud import storage

from tests.contract.emulator.storage_rig import BUCKET, official, running
from tpujob.emulator.storage import StorageFaults, StorageServer
from tpujob.emulator.storage.faults import Billed


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def billed() -> Billed:
    return Billed()


@pytest.fixture
def faults() -> StorageFaults:
    return StorageFaults()


@pytest.fixture
def server(state: Path, faults: StorageFaults, billed: Billed) -> Iterator[StorageServer]:
    with running(state, faults, billed) as server:
        yield server


@pytest.fixture
def client(server: StorageServer) -> Iterator[storage.Client]:
    with official(server.url) as client:
        yield client


@pytest.fixture
def bucket(client: storage.Client) -> storage.Bucket:
    return client.bucket(BUCKET)
