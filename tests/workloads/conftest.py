"""A job for each test, and one cache of compiled programs for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workload_rig import Job


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Of all processes that run tests, as a program takes longer to compile than to run."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder if worker_id == "master" else folder.parent) / "compiled"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture
def job(tmp_path: Path, cache: Path) -> Job:
    return Job(tmp_path, cache)
