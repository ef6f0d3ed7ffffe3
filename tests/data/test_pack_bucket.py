"""Packed sets in a bucket: the manifest comes last, what arrived is what was verified, and back again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.data.rig import Rig, Silent, files_in
from tests.data.test_pack import MIB, some, tree
from tpujob.data.objects import ObjectFacts
from tpujob.data.pack.places import BucketSource, BucketTarget
from tpujob.data.pack.run import Pack
from tpujob.data.pack.unpack import Unpack
from tpujob.data.places import Folder, Prefix
from tpujob.errors import Conflict, Transient


class Gateway:
    """The storage, with a word before each write."""

    def __init__(self, rig: Rig) -> None:
        self._objects = rig.objects
        self.written: list[str] = []
        self.fail_at = ""

    def __getattr__(self, name: str):
        return getattr(self._objects, name)

    def put(self, bucket: str, name: str, *rest: Any) -> ObjectFacts:
        if self.fail_at and self.fail_at in name:
            raise Transient("the storage fails")
        self.written.append(name)
        return self._objects.put(bucket, name, *rest)


def pack(rig: Rig, objects: Gateway, **options: bool) -> None:
    target = BucketTarget(place(rig), objects, rig.ledger, rig.folder / "stage")
    Pack(Folder(str(rig.source)), shard_bytes=MIB).run(target, Silent(), **options)


def place(rig: Rig) -> Prefix:
    return Prefix(rig.bucket, "data/")


@pytest.fixture
def gateway(rig: Rig) -> Gateway:
    tree(rig.source, some(200))
    return Gateway(rig)


def test_a_set_goes_to_a_bucket_and_comes_back(rig: Rig, gateway: Gateway) -> None:
    pack(rig, gateway)
    assert gateway.written[-1] == "data/manifest.json"
    assert len(gateway.written) == 5, "two shards, the labels, the index, the manifest"
    assert not (rig.folder / "stage").exists()
    assert rig.objects.operations.class_a == len(gateway.written), "as the page says: one for each"
    rig.objects.operations.class_a = 0
    pack(rig, gateway)
    assert rig.objects.operations.class_a == 0, "an equal set is not sent again"
    source = BucketSource(place(rig), rig.objects, rig.ledger, rig.folder / "stage")
    done = Unpack(source, str(rig.folder / "back"), Silent()).run()
    assert (done.files, done.left_out, done.conflicts) == (200, 0, 0)
    assert files_in(rig.folder / "back") == files_in(rig.source)


def test_until_all_is_there_nothing_is(rig: Rig, gateway: Gateway) -> None:
    for part in ("00001-", "labels-", "index-", "manifest"):
        gateway.fail_at = part
        with pytest.raises(Transient):
            pack(rig, gateway)
        assert "manifest.json" not in rig.stored()
    gateway.fail_at = ""
    pack(rig, gateway)
    assert len(gateway.written) == len(set(gateway.written)), "nothing was sent twice"
    assert "manifest.json" in rig.stored()


def test_another_set_in_the_bucket_stays(rig: Rig, gateway: Gateway) -> None:
    pack(rig, gateway)
    before = rig.stored()
    tree(rig.source, {"cat/new": b"x"})
    with pytest.raises(Exception, match="another packed set"):
        pack(rig, gateway)
    assert rig.stored() == before
    pack(rig, gateway, replace=True)
    assert rig.stored()["manifest.json"] != before["manifest.json"]


def test_an_object_with_other_bytes_is_not_unpacked(rig: Rig, gateway: Gateway) -> None:
    pack(rig, gateway)
    shard = min(name for name in rig.stored() if name.endswith(".arrayrecord"))
    rig.put(f"data/{shard}", rig.stored()[shard][:-1] + b"\1")
    source = BucketSource(place(rig), rig.objects, rig.ledger, rig.folder / "stage")
    with pytest.raises(Conflict, match="does not have its checksum"):
        Unpack(source, str(rig.folder / "back"), Silent()).run()


def test_a_shard_that_was_damaged_on_its_way_ends_the_pack(rig: Rig, gateway: Gateway) -> None:
    """The disk gives other bytes after the check than at the check: what arrived is compared with what was verified."""

    class Rotten(BucketTarget):
        def publish(self, path: Path, file) -> None:
            data = bytearray(path.read_bytes())
            data[1000] ^= 1
            path.write_bytes(data)
            super().publish(path, file)

    target = Rotten(place(rig), rig.objects, rig.ledger, rig.folder / "stage")
    with pytest.raises(Conflict, match="other bytes than were verified"):
        Pack(Folder(str(rig.source)), shard_bytes=MIB).run(target, Silent())
    assert "manifest.json" not in rig.stored()
