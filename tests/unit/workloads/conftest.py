"""A job for each test, and one cache of compiled programs for all of them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tests.support.warm import IN_HASTE, Warm
from tests.support.workload_rig import Job

#: All modules that use JAX in the process of the tests share its devices, which cannot be chosen twice.
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)


@pytest.fixture(scope="package", autouse=True)
def _in_haste() -> Iterator[None]:
    """Make trainings short in this process and those that it starts; tests/bench/README.md has the long ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", IN_HASTE))
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Share compiled programs among all processes of the tests, as a program takes longer to compile than to run."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder if worker_id == "master" else folder.parent) / "compiled"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm | None]:
    """None where a process may not fork once it has imported such libraries."""
    warm = Warm() if sys.platform == "linux" else None
    yield warm
    if warm:
        warm.close()


@pytest.fixture
def job(tmp_path: Path, cache: Path, warm: Warm | None) -> Job:
    return Job(tmp_path, cache, warm)


@pytest.fixture
def cold_job(tmp_path: Path, cache: Path) -> Job:
    """Return a job whose hosts import what they need, as on a TPU VM."""
    return Job(tmp_path, cache)
