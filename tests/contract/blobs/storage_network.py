"""An adapter of Cloud Storage for a test, and a network between it and the server that fails on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.contract.data.proxy import Proxy, between
from tests.support.waiting import LONG
from tpujob.adapters.gcs import GcsBlobs
from tpujob.emulator.storage import StorageServer

T = LONG
REGION = "us-central2"
BUCKET = "gs://contract-bucket"


@contextmanager
def gcs(url: str) -> Iterator[GcsBlobs]:
    blobs = GcsBlobs("test-project", url)
    try:
        yield blobs
    finally:
        blobs.close()


@contextmanager
def network(server: StorageServer) -> Iterator[tuple[Proxy, GcsBlobs]]:
    """A way to the server whose `change` a test sets, and an adapter at its end."""
    with gcs(server.url) as direct:
        direct.ensure_bucket(BUCKET, REGION, timeout=T)
    with between(server.url) as proxy, gcs(proxy.url) as blobs:
        yield proxy, blobs


def cut(_: bytes) -> None:
    """The connection ends in place of these bytes."""


def damage(data: bytes) -> bytes:
    return data.replace(b"precious", b"prec1ous")


def on(
    change: Callable[[bytes], bytes | None], part: bytes, *, up: bool, times: int = 1
) -> Callable[[bytes, bool], bytes | None]:
    """Decide what happens to the first chunks in that direction that have this part; others pass."""
    remaining = times

    def changed(data: bytes, upward: bool) -> bytes | None:
        nonlocal remaining
        if not remaining or upward is not up or part not in data:
            return data
        remaining -= 1
        return change(data)

    return changed
