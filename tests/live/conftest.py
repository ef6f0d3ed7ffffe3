import os
from collections.abc import Iterator

import pytest

from tests.live.project import Project, emulated, real


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The project that the environment names; without one, the emulator."""
    which = real if os.environ.get("TPUJOB_LIVE_PROJECT") else emulated
    with which(tmp_path_factory.mktemp("live")) as made:
        yield made
