"""An emulated Cloud TPU of each test's own, and the official client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.cloud import tpu_v2

from tests.support.tpu_rig import Cloud


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.stop()


@pytest.fixture
def client(cloud: Cloud) -> tpu_v2.TpuClient:
    return cloud.client()
