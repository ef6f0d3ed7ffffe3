"""The emulator counts what the cloud would bill: operations on the bucket by class, calls of Cloud TPU by method."""

import pytest
from google.api_core import exceptions
from google.cloud import storage, tpu_v2

from tests.contract.emulator.storage_rig import BUCKET
from tests.support.tpu_rig import PARENT, Cloud, node_name
from tpujob.emulator.control import status
from tpujob.emulator.storage.faults import Billed


def grown(billed: Billed, before: dict[str, int]) -> tuple[int, int]:
    now = billed.counts()
    return now["A"] - before["A"], now["B"] - before["B"]


def test_operations_are_counted_by_class(client: storage.Client, billed: Billed) -> None:
    bucket, before = client.bucket(BUCKET), billed.counts()
    blob = bucket.blob("report")
    blob.upload_from_string(b"words")
    assert grown(billed, before) == (1, 0), "a write"
    list(client.list_blobs(BUCKET))
    assert grown(billed, before) == (2, 0), "a list"
    blob.reload()
    blob.download_as_bytes()
    assert grown(billed, before) == (2, 2), "its metadata, and its body"
    bucket.copy_blob(blob, bucket, "copy")
    assert grown(billed, before)[0] >= 3, "a copy"
    before = billed.counts()
    blob.delete()
    with pytest.raises(exceptions.NotFound):
        blob.download_as_bytes()
    assert grown(billed, before) == (0, 0), "deletions are free, and so is what is refused"


def test_a_resumable_upload_is_one_operation(client: storage.Client, billed: Billed) -> None:
    before = billed.counts()
    blob = client.bucket(BUCKET).blob("large")
    blob.chunk_size = 256 * 1024
    blob.upload_from_string(b"x" * (600 * 1024))
    assert grown(billed, before) == (1, 0), "of three pieces"


def test_calls_of_cloud_tpu_are_counted_by_method(cloud: Cloud) -> None:
    tpu: tpu_v2.TpuClient = cloud.client()
    list(tpu.list_nodes(parent=PARENT))
    with pytest.raises(exceptions.NotFound):
        tpu.get_node(name=node_name("nobody"))
    shown = status(cloud.world, None)["billed"]
    assert shown["calls"] == {"GetNode": 1, "ListNodes": 1}
