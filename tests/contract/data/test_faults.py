"""Faults of network, storage and disk during a sync: flipped bytes, cut connections, refusals, a full disk."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.data.proxy import between
from tests.contract.data.rig import Requests, Rig, files_in, split_uploads
from tests.support.waiting import LONG
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.emulator.storage import StorageFault, StorageFaults, StorageServer
from tpujob.errors import Refused, Transient

MIB = 1 << 20


def contents(seed: int, count: int) -> dict[str, bytes]:
    chance = random.Random(seed)
    return {f"{i:03d}": chance.randbytes(chance.randrange(4_000, 30_000)) for i in range(count)}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_byte_or_a_cut_is_caught_and_repeated(rig: Rig, seed: int) -> None:
    files = contents(seed, 150)
    rig.write(files)
    for target in ("", rig.folder / "back"):
        with between(rig.url, share=0.1, limit=30, seed=seed) as proxy:
            through = JsonObjects(proxy.url, patience=LONG)
            done = rig.sync(rig.place if target else "", target, through)
            faults = proxy.flipped + proxy.cut
            through.close()
        assert faults >= 5
        assert (done.copied, done.left_out, done.conflicts) == (150, 0, 0)
        if not target:
            sent = through.operations.class_a
            assert sent >= 151 + faults - 1, "every tampered upload was sent again"
    assert rig.stored() == files_in(rig.folder / "back") == files


@pytest.mark.parametrize("seed", range(2))
def test_a_large_file_survives_it(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    split_uploads(monkeypatch, MIB)
    files = {"large": random.Random(seed).randbytes(7 * MIB + 12_345)}
    rig.write(files)
    for target in ("", rig.folder / "back"):
        with between(rig.url, share=0.05, limit=2, seed=seed) as proxy:
            through = JsonObjects(proxy.url, patience=LONG)
            done = rig.sync(rig.place if target else "", target, through)
            assert proxy.flipped + proxy.cut == 2
            through.close()
        assert (done.copied, done.conflicts) == (1, 0)
    assert rig.stored() == files
    assert files_in(rig.folder / "back") == files


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[tuple[Rig, StorageFaults]]:
    """A storage of its own, which fails on demand."""
    faults = StorageFaults()
    server = StorageServer(tmp_path / "storage", faults=faults)
    rig = Rig(server.url, tmp_path)
    yield rig, faults
    rig.close()
    server.stop()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(StorageFault(503, 1, method="POST", when="post"), id="its answer is lost"),
        pytest.param(StorageFault(429, 2, method="POST"), id="the bucket is busy"),
    ],
)
def test_a_write_that_fails_is_repeated_and_no_conflict_with_oneself(
    faulty: tuple[Rig, StorageFaults], fault: StorageFault
) -> None:
    rig, faults = faulty
    rig.write({"file": b"ours"})
    faults.add(fault)
    done = rig.sync()
    assert (done.copied, done.conflicts) == (1, 0)
    assert rig.stored() == {"file": b"ours"}


def test_no_permission_ends_the_sync_with_what_to_do(faulty: tuple[Rig, StorageFaults]) -> None:
    rig, faults = faulty
    rig.write({f"{i}": b"x" for i in range(100)})
    faults.add(StorageFault(403, 1000, method="POST"))
    with pytest.raises(Refused) as refused:
        rig.sync()
    assert "roles/storage.objectUser" in refused.value.hint
    faults.clear()
    assert rig.sync().copied == 100


def test_a_file_without_its_end_is_not_copied(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage answers 308 without an error."""
    split_uploads(monkeypatch, MIB)
    rig.write({"large": random.Random(7).randbytes(5 * MIB)})

    class Refusing(Requests):
        def write_request(self, send: Any, method: str, url: str, **options: Any) -> Any:
            span = options["headers"].get("content-range", "")
            if span.endswith(f"-{5 * MIB - 1}/{5 * MIB}"):
                headers = {"content-range": f"bytes */{5 * MIB}"}
                return send(method, url, headers=headers, timeout=10)
            return super().write_request(send, method, url, **options)

    with pytest.raises(Transient, match="has not taken"):
        rig.sync(objects=Refusing(rig.url, patience=LONG))
    assert rig.stored() == {}


def test_a_session_lost_by_the_storage_restarts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    split_uploads(monkeypatch, MIB)
    files = {"large": random.Random(7).randbytes(5 * MIB)}
    rig.write(files)

    class Ending(Requests):
        pieces = 0

        def write_request(self, send: Any, method: str, url: str, **options: Any) -> Any:
            self.pieces += method == "PUT"
            if self.pieces == 2:
                send("DELETE", url)
            return super().write_request(send, method, url, **options)

    done = rig.sync(objects=Ending(rig.url, patience=LONG))
    assert (done.copied, done.conflicts) == (1, 0)
    assert rig.stored() == files
