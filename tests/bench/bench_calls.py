"""How many calls of Cloud TPU running jobs make: the real adapter and the engine's lists, against the emulated API.

Run: python -m tests.bench.bench_calls [JOBS ...]. Every slice is looked at every 10 s, as ticks of running jobs do.
That clock is turned by hand; the calls are made. The table: calls in a minute, how old a look is at most, what a list
takes, with the emulated service in the same process. The last line: what looks by name cost.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from tests.contract.slices.tpu_slices import SLICE, ask, gone, wait_for
from tests.support.tpu_rig import PROJECT, Cloud
from tests.support.world import Clock
from tpujob.adapters.cloud_tpu import CloudTpuSlices, lists
from tpujob.domain.model import Slice
from tpujob.domain.observations import Present, SliceState
from tpujob.emulator.faults import inject
from tpujob.engine import slice_cache
from tpujob.engine.slice_cache import LAG, SliceCache

ZONES = (
    "us-central2-b", "us-central1-a", "us-central1-b", "us-east1-d", "us-east5-a", "us-east5-b", "us-south1-a",
    "us-west1-c", "us-west4-a", "europe-west4-b",
)  # fmt: skip
TICK, MINUTES = 10, 4
TARGET = 60


@dataclass
class Measured:
    calls: Counter[str]  #: in a minute, by method
    lists: int
    age: float  #: seconds, of the oldest look
    cpu: float  #: seconds of this process for one list, with the emulated service in it


def main() -> None:
    slice_cache.TIMEOUT = 120.0  # this machine also is the service, and may be busy with more
    jobs = [int(one) for one in sys.argv[1:]] or [1, 100, 1000, 5000, 10_000]
    print(
        f"{'jobs':>7} {'a page':>7} {'calls/min':>10} {'lists':>6} {'oldest look':>12} {'a list takes':>15}"
    )
    for many in jobs:
        _line(many, 1000)
    for page in (500, 100):
        _line(jobs[-1] if page == 500 else min(1000, jobs[-1]), page)
    _of_an_end()


def _line(jobs: int, page: int) -> None:
    found = measured(jobs, page)
    total = sum(found.calls.values())
    print(
        f"{jobs:7,} {page:7,} {total:10.1f} {found.lists:6} {found.age:10.0f} s {found.cpu:9.1f} CPU s"
        f"   {', '.join(f'{name} {n:g}' for name, n in sorted(found.calls.items()))}"
        + (f"   above {TARGET}" if total > TARGET else ""),
        flush=True,
    )


def measured(jobs: int, page: int, minutes: float = MINUTES) -> Measured:
    cloud, made = Cloud(page_size=page), Counter[str]()
    slices = CloudTpuSlices(
        PROJECT, endpoint=cloud.tpu.address, count=lambda method, outcome: made.update([method])
    )
    try:
        held = populated(cloud, slices, jobs)
        made.clear()
        return _looked_at(held, slices, made, minutes)
    finally:
        slices.close()
        cloud.stop()


def populated(cloud: Cloud, slices: CloudTpuSlices, jobs: int) -> list[Slice]:
    """So many slices that are ready, in ten zones: one is made by the API, the others in its image."""
    ask(slices)
    wait_for(slices, SliceState.READY)
    world, numbers, held = cloud.world, count(1000), list[Slice]()
    with world.lock:
        (queued,), (node,) = world.queued.values(), world.nodes.values()
        for n in range(1, jobs):
            name, zone = f"tj-{100_000 + n}-1", ZONES[n % len(ZONES)]
            asked = replace(queued, id=name, zone=zone, specs=((name, queued.specs[0][1]),))
            made = replace(node, id=name, zone=zone, number=next(numbers), queued=asked.name)
            world.queued[asked.name], world.nodes[made.name] = asked, made
            held.append(replace(SLICE, name=name, zone=zone))
    return [SLICE, *held]


def _looked_at(
    held: Sequence[Slice], slices: CloudTpuSlices, made: Counter[str], minutes: float
) -> Measured:
    """By an engine that has run for a while."""
    clock = Clock()
    listing, oldest, cpu, lists = SliceCache(slices, clock), 0.0, 0.0, 0
    clock.sleep(LAG)
    for one in held[:20]:  # which zones there are to list
        listing.look(one, timeout=60)
    clock.sleep(120)
    made.clear()
    listed_at = clock.now()
    for second in range(int(minutes * 60)):
        for one in held[second % TICK :: TICK]:
            before = sum(made.values())
            spent = time.process_time()
            seen, listed = listing.look(one, timeout=60)
            assert isinstance(seen, Present), seen
            assert seen.state is SliceState.READY
            assert listed, f"{one.name} was looked at by name"
            if sum(made.values()) > before:
                lists, listed_at = lists + 1, clock.now()
                cpu += time.process_time() - spent
        oldest = max(oldest, clock.now() - listed_at)
        clock.sleep(1)
    each = Counter({name: n / minutes for name, n in made.items()})
    return Measured(each, lists, oldest, cpu / lists)


def _of_an_end() -> None:
    cloud, made = Cloud(), Counter[str]()
    slices = CloudTpuSlices(
        PROJECT, endpoint=cloud.tpu.address, count=lambda method, outcome: made.update([method])
    )
    ask(slices)
    created = sum(made.values())
    wait_for(slices, SliceState.READY)
    made.clear()
    slices.look(SLICE, timeout=10)
    look = sum(made.values())
    with cloud.world.lock:
        inject.preempt(cloud.world, SLICE.name, notice_s=0)
    while (lost := wait_for(slices, SliceState.PREEMPTED)).suspending:
        pass
    made.clear()
    slices.look(SLICE, timeout=10)
    shown = sum(made.values())
    slices.delete(SLICE, timeout=10, seen=lost)
    deleted = sum(made.values()) - shown
    gone(slices)
    time.sleep(lists.SHARED)
    made.clear()
    for _ in range(2):
        slices.look(SLICE, timeout=10)
    last = sum(made.values()) - 2 * look
    print(
        f"by name: a look {look} calls, at what is lost {shown}, one that finds nothing {look + last}, "
        f"{look} a moment later; a request {created}, a deletion {deleted}; "
        f"by name alone, every 10 s: {6 * look} calls a minute for each job"
    )
    slices.close()
    cloud.stop()


if __name__ == "__main__":
    main()
