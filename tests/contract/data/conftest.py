"""An emulated Cloud Storage, a folder beside it, and syncs between them in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.data.killed import Killed
from tests.contract.data.rig import Rig
from tests.contract.emulator import storage_rig


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with storage_rig.running(tmp_path_factory.mktemp("storage")) as running:
        yield running.url


@pytest.fixture
def rig(server: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    """The rig of killed syncs, with a storage that no other test uses, as the tests list unfinished uploads."""
    with storage_rig.running(tmp_path / "storage") as server:
        made = Killed(tmp_path, server.url)
        yield made
        made.rig.close()
