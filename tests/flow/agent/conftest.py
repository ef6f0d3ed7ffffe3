"""Hosts for each test, gone with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_host import Bucket, Host, MetadataServer


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    bucket, metadata = Bucket(tmp_path / "storage"), MetadataServer()
    made = Host(tmp_path, bucket, metadata)
    yield made
    made.close()
    metadata.close()
    bucket.close()


@pytest.fixture
def pair(host: Host, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts of a slice."""
    other = Host(tmp_path / "other", host.bucket, host.metadata)
    yield host, other
    other.close()
