"""Two syncs and a foreign writer on one object from outside: each way they can interleave. No update is lost.

TPUJOB_RACES is how many interleavings are tried; tests/bench/README.md tries many.
"""

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.data.rig import Requests, Rig, split_uploads
from tests.contract.data.web import WebServer, serving
from tests.support.waiting import LONG
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.adapters.web_files import WebFiles
from tpujob.data.locations import Url, web_files
from tpujob.data.sync.checksum_cache import ChecksumCache

OURS = b"o" * 3000
SAME = b"ours, too" * 400


@pytest.fixture
def web() -> Iterator[WebServer]:
    with serving(WebServer(files={"x": OURS})) as server:
        yield server


class Interrupted(Requests):
    """Cloud Storage in which another program acts before the n-th request that writes."""

    def __init__(self, rig: Rig, when: int, act: Any) -> None:
        super().__init__(rig.url, patience=LONG)
        self._when, self._act = when, act

    def write_request(self, send: Any, method: str, url: str, **options: Any) -> Any:
        self._when -= 1
        if self._when == 0:
            self._act()
        return send(method, url, **options)


def fetch(rig: Rig, url: str, objects: JsonObjects) -> Any:
    place = Url(url)
    reader = WebFiles(web_files(place), patience=LONG)
    try:
        return rig.from_outside(place, rig.place, reader, objects)
    finally:
        reader.close()
        objects.close()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("before", [b"", b"listed"])
@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_foreign_write_at_any_time_stays_and_is_reported_once(
    rig: Rig, web: WebServer, large: bool, before: bytes, when: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, 1000 if large else 1 << 20)
    if before:
        rig.put("data/x", before)
    acted: list[bool] = []
    theirs = Interrupted(rig, when, lambda: (rig.put("data/x", b"theirs"), acted.append(True)))
    done = fetch(rig, f"{web.url}/x", theirs)
    assert rig.stored() == {"x": b"theirs" if acted else OURS}
    assert (done.copied, done.conflicts) == ((0, 1) if acted else (1, 0))


@pytest.mark.parametrize("seed", range(int(os.environ.get("TPUJOB_RACES", "12"))))
def test_two_machines_and_a_foreign_writer_leave_one_whole_object(
    rig: Rig, web: WebServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second machine has a cache of its own, and syncs in the middle of the first's."""
    chance = random.Random(seed)
    split_uploads(monkeypatch, chance.choice([1000, 1 << 20]))
    foreign = chance.random() < 0.5
    ends: list[Any] = []

    def other_machine() -> None:
        mine, rig.cache = rig.cache, ChecksumCache(rig.folder / "other")
        act = lambda: rig.put("data/x", SAME) if foreign else None  # noqa: E731
        ends.append(fetch(rig, f"{web.url}/x", Interrupted(rig, chance.randrange(1, 4), act)))
        rig.cache.close()
        rig.cache = mine

    first = fetch(rig, f"{web.url}/x", Interrupted(rig, chance.randrange(1, 3), other_machine))
    stored = rig.stored()["x"]
    assert stored in (OURS, SAME)
    for end in (first, *ends):
        assert end.copied + end.conflicts == 1
    if stored == SAME:
        assert foreign
        assert first.conflicts == 1, "the first did not write over it"
    else:
        assert first.copied == 1, "the other machine's copy is the same bytes, and no conflict"
