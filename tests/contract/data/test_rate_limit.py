"""How fast a bucket is written to: the rule, and the limiter with a turned clock."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.data.rig import Rig
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.data.rate_limit import DOUBLING, FIRST, RateLimit, WritePace
from tpujob.emulator.storage import StorageFault, StorageFaults, StorageServer


class Clock:
    """Time passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def limit(self) -> RateLimit:
        return RateLimit(lambda: self.now, self.sleep, lambda: 0.0)


def writes_in(limit: RateLimit, clock: Clock, seconds: float) -> int:
    end, count = clock.now + seconds, 0
    while clock.now < end:
        limit.wait("b")
        count += 1
    return count


def test_a_bucket_takes_800_writes_a_second_at_first_and_at_most_twice_as_many_after_20_minutes() -> (
    None
):
    clock = Clock()
    limit = clock.limit()
    assert writes_in(limit, clock, 2) == pytest.approx(2 * FIRST, rel=0.01)
    clock.now += DOUBLING
    assert writes_in(limit, clock, 2) == pytest.approx(2 * 2 * FIRST, rel=0.01), (
        "nothing is saved up"
    )


@given(st.floats(0, 10 * DOUBLING), st.floats(0, DOUBLING))
def test_the_rate_at_most_doubles_in_any_20_minutes(begin: float, length: float) -> None:
    pace = WritePace(FIRST, 0.0)
    assert pace.at(0.0) == FIRST
    assert pace.at(begin + length) <= pace.at(begin) * 2.000001
    assert pace.at(begin + DOUBLING) == pytest.approx(2 * pace.at(begin))


def test_a_refusal_halves_the_rate_and_many_at_once_halve_it_once() -> None:
    clock = Clock()
    limit = clock.limit()
    limit.wait("b")
    for _ in range(16):
        limit.slow_down("b")
    assert writes_in(limit, clock, 2) == pytest.approx(FIRST, rel=0.01)
    clock.now += 60
    limit.slow_down("b")
    assert writes_in(limit, clock, 2) == pytest.approx(FIRST / 2, rel=0.05)
    for _ in range(40):
        clock.now += 11
        limit.slow_down("b")
    assert writes_in(limit, clock, 2) >= 20, "it never stands still"


def test_each_bucket_has_its_own_rate() -> None:
    clock = Clock()
    limit = clock.limit()
    for _ in range(100):
        limit.wait("a")
    before = clock.slept
    limit.wait("b")
    assert clock.slept == before


def test_threads_share_the_rate() -> None:
    clock, lock = Clock(), threading.Lock()
    begun: list[float] = []

    def sleep(seconds: float) -> None:
        with lock:
            begun.append(seconds)

    limit = RateLimit(lambda: clock.now, sleep, lambda: 0.0)
    threads = [
        threading.Thread(target=lambda: [limit.wait("b") for _ in range(50)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(begun) == pytest.approx(399 / FIRST), "400 writes, one after the other"


def test_a_storage_that_is_busy_is_written_to_more_slowly(tmp_path: object, rig: Rig) -> None:
    faults = StorageFaults()
    server = StorageServer(rig.folder / "busy", faults=faults)
    other = Rig(server.url, rig.folder / "own")
    told: list[str] = []

    class Rate(RateLimit):
        def wait(self, bucket: str) -> None:
            told.append(f"write {bucket}")

        def slow_down(self, bucket: str) -> None:
            told.append(f"slow {bucket}")

    try:
        other.write({"file": b"x"})
        faults.add(StorageFault(429, 2, method="POST"))
        objects = JsonObjects(server.url, patience=10, rate=Rate())
        assert other.sync(objects=objects).copied == 1
        b = other.bucket
        assert told == [f"write {b}", f"slow {b}"] * 2 + [f"write {b}"], "each try is a write"
    finally:
        other.close()
        server.stop()
