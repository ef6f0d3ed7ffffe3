"""The official client of an emulated Cloud TPU of each test's own; a host farm for all tests of a module."""

from collections.abc import Iterator

import pytest
from google.cloud import tpu_v2

from tests.support.farm_rig import FarmProcess
from tests.support.tpu_rig import Cloud


@pytest.fixture
def client(cloud: Cloud) -> tpu_v2.TpuClient:
    return cloud.client()


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmProcess]:
    process = FarmProcess(tmp_path_factory.mktemp("farm"))
    yield process
    process.stop()
