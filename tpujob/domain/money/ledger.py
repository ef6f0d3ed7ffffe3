"""The ledger: the past cost of slices, from ready to confirmed gone, at each slice's own rate. Pure.

The rate is stored with the request of the slice; a later price list changes no amount here. Amounts are list prices in
whole micro-dollars. Documented: a ready slice is billed by the second, and a slice preempted in its first minute is
free. Assumed, to be careful: billing ends when the slice is gone, not when its deletion is requested. What no poll saw
(`Slice.certain_until`) counts in reports, which say so, and in no budget: a guess ends no job.

A grant pays for slices of one generation, zone and pricing, up to a number of chips at a time. Everything else is
billed: disks, storage and traffic always. A job has the grants of its context at its submission.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple, Protocol

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Grant, Job, Slice

US = 1_000_000  #: microseconds in a second, and micro-dollars in a dollar
HOUR = 3600 * US
FREE_MINUTE = 60.0  #: seconds from which on a preempted slice is billed


def moment(seconds: float) -> int:
    """Return a time in microseconds."""
    return round(seconds * US)


def rate(slice: Slice) -> int | None:
    """Return the micro-dollars an hour of the whole slice; None: its price was unknown when it was requested."""
    return None if slice.usd_per_hour is None else round(slice.usd_per_hour * US)


def free(slice: Slice) -> bool:
    """Return whether the slice is free: preemptible, and reported as preempted by the cloud in its first minute."""
    if slice.ready_at is None or slice.preempted_at is None:
        return False
    if not find_pricing(slice.pricing).preemptible or slice.epoch:
        return False  # a slice with an epoch was ready before, for another job
    return slice.preempted_at - slice.ready_at < FREE_MINUTE


def certain(slice: Slice) -> Slice:
    """Return the slice with the end of its billed time at the last moment that is certain, if it is gone."""
    unsure = slice.gone_at is not None and slice.certain_until is not None
    return replace(slice, gone_at=slice.certain_until) if unsure else slice


def accrued(rate: int, time: int) -> int:
    """Return the micro-dollars at that hourly rate after so many microseconds, rounded."""
    return (rate * time + HOUR // 2) // HOUR


class BilledSlice(NamedTuple):
    """A row of the ledger: what the cost of a slice depends on. Times are in microseconds since the epoch."""

    ready: int
    gone: int | None  #: None: it is still billed
    rate: int | None  #: micro-dollars an hour, 0 for a free slice; None: unknown price


#: further away than every time
EVER = 1 << 62


def rows(slices: Iterable[Slice]) -> list[BilledSlice]:
    """Return a row for each of the slices that was ready."""
    return [
        BilledSlice(
            ready=moment(s.ready_at),
            gone=None if s.gone_at is None else moment(s.gone_at),
            rate=0 if free(s) else rate(s),
        )
        for s in slices
        if s.ready_at is not None
    ]


def cost(rows: Iterable[BilledSlice], until: int = EVER, since: int = -EVER) -> int | None:
    """Return the micro-dollars of the rows from `since` to `until`; None: one is billed at an unknown price. The cost
    of a time is the difference of two accrued amounts, so that its parts cost as much as the whole."""
    total = 0
    for ready, gone, rate in rows:
        start, end = max(ready, since), until if gone is None else min(gone, until)
        if end <= start:
            continue
        if rate is None:
            return None
        total += accrued(rate, end - ready) - accrued(rate, start - ready)
    return total


def micros(slices: Iterable[Slice], now: float) -> int | None:
    """Return the micro-dollars of the slices, of those that are still billed up to `now`; None: one is billed at an
    unknown price. A slice that is gone costs the same by any clock, also by one that is behind."""
    end = moment(now)
    return cost(row if row.gone is not None else row._replace(gone=end) for row in rows(slices))


def usd(slices: Iterable[Slice], now: float) -> float | None:
    """Return the same in US dollars."""
    total = micros(slices, now)
    return None if total is None else total / US


#: id of a job and name of its slice
Key = tuple[str, str]
#: generation, zone and pricing of a grant
Where = tuple[str, str, str]


def where(type: str, zone: str, pricing: str) -> Where:
    return accelerators.find(type).generation, zone, pricing


def granted(grants: Iterable[Grant], where: Where) -> int:
    """Return the chips of these grants for one generation, zone and pricing."""
    return sum(g.chips for g in grants if (g.generation, g.zone, g.pricing) == where)


class Granted(Protocol):
    """The part of a job that `covered` reads."""

    @property
    def id(self) -> str: ...
    @property
    def grants(self) -> tuple[Grant, ...]: ...
    @property
    def slices(self) -> tuple[Slice, ...]: ...


def covered(jobs: Iterable[Granted]) -> frozenset[Key]:
    """Return the slices that a grant pays for. Slices are taken in the order in which they became ready. A slice is
    covered for its whole life if all its chips fit beside the slices that are covered already."""
    candidates = [
        (slice.ready_at, job.id, slice.name, slice, job.grants)
        for job in jobs
        for slice in (job.slices if job.grants else ())
        if slice.ready_at is not None
    ]
    paid: set[Key] = set()
    used = Counter[Where]()  #: chips of the covered slices that live
    living: dict[Where, list[tuple[float, int]]] = defaultdict(list)  #: their ends and chips
    for ready_at, job_id, name, slice, grants in sorted(candidates, key=itemgetter(0, 1, 2)):
        key = where(slice.type, slice.zone, slice.pricing)
        while living[key] and living[key][0][0] <= ready_at:
            used[key] -= heapq.heappop(living[key])[1]
        if used[key] + accelerators.chips_of(slice) <= granted(grants, key):
            used[key] += accelerators.chips_of(slice)
            gone_at = math.inf if slice.gone_at is None else slice.gone_at
            heapq.heappush(living[key], (gone_at, accelerators.chips_of(slice)))
            paid.add((job_id, name))
    return frozenset(paid)


def in_use(jobs: Sequence[Job]) -> Counter[Where]:
    """Return the chips of living slices that a grant pays for."""
    paid = covered(jobs)
    chips_in_use = Counter[Where]()
    for job in jobs:
        for slice in job.slices:
            if slice.gone_at is None and (job.id, slice.name) in paid:
                chips_in_use[where(slice.type, slice.zone, slice.pricing)] += accelerators.chips_of(
                    slice
                )
    return chips_in_use
