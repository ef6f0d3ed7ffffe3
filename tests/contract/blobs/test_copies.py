"""The contract of the adapter of the Copies port, on our Cloud Storage."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.contract.blobs.storage_network import T, gcs
from tpujob.adapters.gcs import GcsBlobs
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.data.copies import ObjectCopies
from tpujob.data.objects import ObjectFacts
from tpujob.domain.copies import Copy, CopyProgress, Saved
from tpujob.domain.model import Cause
from tpujob.emulator.storage import StorageServer, json_api
from tpujob.errors import NotFound, Refused

FROM, TO = "gs://source-bucket", "gs://target-bucket"
OUT = "outputs/host-0/figure.png"
FILES = {"a": b"1", "a//b": b"22", "dir/": b"", "z/é": b"333"}


class Rig:
    def __init__(self, blobs: GcsBlobs, url: str) -> None:
        self.blobs, self.objects = blobs, Watched(url, patience=5)
        self.now = 0.0
        self.copies = ObjectCopies(self.objects, clock=lambda: self.now)
        blobs.ensure_bucket(FROM, "europe-west4", timeout=T)
        blobs.ensure_bucket(TO, "us-east5", timeout=T)

    def put(self, place: str, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            self.blobs.put(f"{place}/{name}", data, timeout=T)

    def below(self, place: str) -> dict[str, bytes]:
        objects = self.blobs.list(f"{place}/", timeout=T)
        return {b.path[len(place) + 1 :]: self.blobs.get(b.path, timeout=T) for b in objects}

    def whole(self, copy: Copy, *, rounds: int = 20) -> CopyProgress:
        for _ in range(rounds):
            copy = replace(copy, progress=self.copies.advance(copy, timeout=10))
            if copy.progress.whole:
                return copy.progress
        raise AssertionError(f"not whole after {rounds} rounds: {copy.progress}")


class Watched(JsonObjects):
    """Counts the calls of rewrites, and does something before one of them."""

    calls = 0
    before = staticmethod(lambda name, token: None)

    def rewrite(
        self,
        bucket: str,
        facts: ObjectFacts,
        to_bucket: str,
        name: str,
        generation: int,
        token: str,
    ) -> str | ObjectFacts:
        self.calls += 1
        self.before(facts.name, token)
        return super().rewrite(bucket, facts, to_bucket, name, generation, token)


@pytest.fixture
def rig(server: StorageServer) -> Iterator[Rig]:
    with gcs(server.url) as blobs:
        made = Rig(blobs, server.url)
        yield made
        made.objects.close()


def copy(source: str = f"{FROM}/x", target: str = f"{TO}/y", saved: Saved | None = None) -> Copy:
    return Copy("x@us-east5", "x", source, target, "us-east5", 0.0, 50_000, 5, saved)


def test_every_object_is_copied_once_and_the_rest_is_left_alone(rig: Rig) -> None:
    rig.put(f"{FROM}/x", FILES)
    rig.put(f"{FROM}/xy", {"a": b"of another set"})
    rig.put(f"{TO}/y", {"a": b"1", "z/é": b"old", "own": b"stays"})
    before = rig.copies.compare(f"{FROM}/x", f"{TO}/y", timeout=10)
    assert (before.objects, before.bytes, before.missing, before.missing_bytes) == (4, 6, 3, 5)
    done = rig.whole(copy())
    assert rig.below(f"{TO}/y") == {**FILES, "own": b"stays"}
    assert (done.objects, done.bytes, done.same, done.same_bytes) == (3, 5, 1, 1)
    assert (done.total, done.total_bytes) == (4, 6)
    assert rig.objects.calls == 3
    again = rig.whole(copy())
    assert (again.objects, again.same, rig.objects.calls) == (0, 4, 3)
    assert rig.copies.compare(f"{FROM}/x", f"{TO}/y", timeout=10).missing == 0


def test_a_whole_bucket_is_a_prefix_too(rig: Rig) -> None:
    rig.put(FROM, {"a": b"1"})
    rig.whole(copy(source=FROM))
    assert rig.below(f"{TO}/y") == {"a": b"1"}


def test_a_round_ends_when_its_time_is_up_and_the_next_one_goes_on(rig: Rig) -> None:
    rig.put(f"{FROM}/x", {f"{n:03}": bytes([n]) for n in range(150)})

    def slow(name: str, token: str) -> None:
        rig.now += 0.2

    rig.objects.before = slow  # type: ignore[method-assign]
    first = rig.copies.advance(copy(), timeout=5)
    assert not first.whole
    assert 0 < first.objects < 150
    rig.objects.before = lambda name, token: None  # type: ignore[method-assign]
    done = rig.whole(replace(copy(), progress=first))
    assert (done.objects, rig.objects.calls) == (150, 150), "no object is copied twice"


def test_a_large_object_goes_on_from_its_token(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_api, "REWRITE_BYTES", 16 << 20)
    rig.put(f"{FROM}/x", {"large": bytes(40 << 20), "small": b"1"})
    tokens: list[str] = []

    def slow(name: str, token: str) -> None:
        if name == "x/large":
            tokens.append(token)
            rig.now += 11

    rig.objects.before = slow  # type: ignore[method-assign]
    progress = rig.copies.advance(copy(), timeout=10)
    assert set(progress.tokens) == {"large"}, "the time of a round is up after one call"
    done = rig.whole(replace(copy(), progress=progress))
    assert tokens[0] == ""
    assert all(tokens[1:]), "only the first call begins at the start"
    assert (done.objects, done.bytes) == (2, (40 << 20) + 1)


def test_a_token_that_has_ended_and_a_source_that_changed_begin_anew(rig: Rig) -> None:
    rig.put(f"{FROM}/x", {"a": b"old"})
    lost = replace(copy(), progress=CopyProgress(tokens={"a": "gone"}, total=1, total_bytes=3))
    rig.whole(lost)
    assert rig.below(f"{TO}/y") == {"a": b"old"}
    rig.put(f"{FROM}/x", {"a": b"new", "b": b"1"})

    def change(name: str, token: str) -> None:
        rig.objects.before = lambda name, token: None  # type: ignore[method-assign]
        rig.put(f"{FROM}/x", {"a": b"newest"})

    rig.objects.before = change  # type: ignore[method-assign]
    rig.whole(copy())
    assert rig.below(f"{TO}/y") == {"a": b"newest", "b": b"1"}


def test_a_source_that_changes_behind_the_copy_is_passed_through_again(rig: Rig) -> None:
    rig.put(f"{FROM}/x", {"a": b"1", "b": b"2"})
    first = rig.copies.advance(copy(), timeout=10)
    assert (first.passes, first.whole) == (1, False)
    rig.put(f"{FROM}/x", {"a": b"other", "0": b"new"})
    rig.whole(replace(copy(), progress=first))
    assert rig.below(f"{TO}/y") == {"0": b"new", "a": b"other", "b": b"2"}


def test_what_somebody_else_writes_at_the_target_is_met_with_a_condition(rig: Rig) -> None:
    rig.put(f"{FROM}/x", {"a": b"right"})

    def foreign(name: str, token: str) -> None:
        rig.objects.before = lambda name, token: None  # type: ignore[method-assign]
        rig.put(f"{TO}/y", {"a": b"foreign"})

    rig.objects.before = foreign  # type: ignore[method-assign]
    first = rig.copies.advance(copy(), timeout=10)
    assert not first.whole
    assert rig.below(f"{TO}/y") == {"a": b"foreign"}, "nothing is written over blindly"
    rig.whole(replace(copy(), progress=first))
    assert rig.below(f"{TO}/y") == {"a": b"right"}


def test_a_source_without_an_object_or_a_bucket_is_a_clear_no(rig: Rig) -> None:
    with pytest.raises(Refused, match="there is nothing below gs://source-bucket/x/") as empty:
        rig.copies.advance(copy(), timeout=10)
    assert empty.value.cause == Cause.BAD_SPEC
    with pytest.raises(Refused) as missing:
        rig.copies.advance(copy(source="gs://no-such-bucket/x"), timeout=10)
    assert missing.value.cause == Cause.BAD_SPEC
    with pytest.raises(NotFound):
        rig.copies.compare("gs://no-such-bucket/x", "", timeout=10)


@pytest.mark.parametrize(
    ("saved", "follows"),
    [
        (Saved(30), ["checkpoints/ckpt-20/w", "checkpoints/ckpt-40/w", OUT]),
        (Saved(5), ["checkpoints/ckpt-10/w", "checkpoints/ckpt-20/w", "checkpoints/ckpt-40/w", OUT]),
        (Saved(30, before=20), ["checkpoints/ckpt-10/w", OUT]),
        (Saved(30, before=10), [OUT]),
        (
            Saved(None),
            ["checkpoints/50.orbax-checkpoint-tmp-60/w", "checkpoints/ckpt-10/w", "checkpoints/ckpt-20/w",
             "checkpoints/ckpt-40/w", OUT, "own.txt"],
        ),
    ],
)  # fmt: skip
def test_a_workdir_sends_its_newest_checkpoint(rig: Rig, saved: Saved, follows: list[str]) -> None:
    """The last one known may be gone: programs keep few, and save after their last report."""
    steps = {f"checkpoints/ckpt-{n}/w": b"w" for n in (10, 20, 40)}
    rig.put(
        f"{FROM}/jobs/1",
        {
            **steps,
            "checkpoints/50.orbax-checkpoint-tmp-60/w": b"not finished",
            "own.txt": b"",
            OUT: b"o",
            "attempts/1/reports/host-0": b"report",
        },
    )
    done = rig.whole(copy(f"{FROM}/jobs/1", f"{TO}/jobs/1", saved))
    assert sorted(rig.below(f"{TO}/jobs/1")) == follows
    assert done.objects == len(follows)


def test_a_comparison_ends_in_time_and_says_so(rig: Rig) -> None:
    rig.put(f"{FROM}/x", FILES)
    copies = ObjectCopies(rig.objects, clock=iter(range(100)).__next__)
    assert not copies.compare(f"{FROM}/x", "", timeout=2).counted
