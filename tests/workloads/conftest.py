"""A job for each test, and one cache of compiled programs for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workload_rig import Job


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def job(tmp_path: Path, cache: Path) -> Job:
    return Job(tmp_path, cache)
