"""The emulated Cloud Storage of each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpujob.emulator.storage import StorageFaults, StorageServer


@pytest.fixture
def faults() -> StorageFaults:
    return StorageFaults()


@pytest.fixture
def server(tmp_path: Path, faults: StorageFaults) -> Iterator[StorageServer]:
    server = StorageServer(tmp_path / "storage", faults=faults)
    yield server
    server.stop()
