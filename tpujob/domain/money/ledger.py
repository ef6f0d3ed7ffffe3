"""What slices have cost: from the moment each was first seen ready until it was seen to be gone, at its own rate. Pure.

The rate was stored with the slice when it was asked for; a later price list changes no amount here. Amounts are list
prices in whole micro-dollars. Per-second billing of a ready slice is documented, and that one which is preempted in its
first minute is free; that billing ends when the slice is gone, and not when a deletion is asked for, is the careful
reading.

A grant pays for slices of one generation, zone and pricing, up to a number of chips at a time. Everything else is
billed: disks, storage and traffic always. The grants of a job are those of its context at its submission.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Cause, Grant, Job, Slice

US = 1_000_000  #: microseconds in a second, and micro-dollars in a dollar
HOUR = 3600 * US
FREE_MINUTE = 60.0  #: seconds after which a preempted slice is billed


@dataclass(frozen=True, slots=True)
class Bill:
    """What one slice has cost so far by list price, in micro-dollars. None: its price is not known."""

    most: int | None
    #: less than `most` while a slice that is missing is not yet confirmed to be gone
    least: int | None
    open: bool  #: it is still billed


def moment(seconds: float) -> int:
    """A time in microseconds."""
    return round(seconds * US)


def rate(slice: Slice) -> int | None:
    """Micro-dollars an hour for the whole slice; None: no price was known when it was asked for."""
    return None if slice.usd_per_hour is None else round(slice.usd_per_hour * US)


def free(job: Job, slice: Slice) -> bool:
    """Return whether the cloud preempted it within its first minute, by the times at which that was seen."""
    if slice.ready_at is None or slice.pricing != "spot" or slice.epoch:
        return False  # one that another job had was ready before
    ended = [
        a.ended_at for a in job.attempts if a.slice == slice.name and a.cause is Cause.PREEMPTED
    ]
    seen = [at for at in (*ended, slice.missing_since, slice.suspending_since) if at is not None]
    return bool(seen) and min(seen) - slice.ready_at < FREE_MINUTE


def accrued(rate: int, time: int) -> int:
    """Micro-dollars at that rate after that many microseconds, rounded."""
    return (rate * time + HOUR // 2) // HOUR


def between(rate: int, ready: int, since: int, until: int) -> int:
    """Micro-dollars from `since` to `until` of what is billed from `ready` on; 0 if that is no time at all. It is the
    difference of what accrued, so the parts of a time cost what the whole costs."""
    since = max(since, ready)
    return accrued(rate, until - ready) - accrued(rate, since - ready) if until > since else 0


def billed_time(slice: Slice, now: float) -> int:
    """Microseconds for which it has been billed; 0 if it was never ready, or if a clock was set back."""
    if slice.ready_at is None:
        return 0
    end = now if slice.gone_at is None else slice.gone_at
    return max(0, moment(end) - moment(slice.ready_at))


def bill(slice: Slice, now: float) -> Bill:
    """What `slice` has cost at `now`."""
    known, time = rate(slice), billed_time(slice, now)
    if not time:
        return Bill(0, 0, _open(slice))
    if known is None:
        return Bill(None, None, _open(slice))
    unsure = slice.missing_since if slice.gone_at is None else None
    surely = time if unsure is None else min(time, billed_time(slice, unsure))
    return Bill(accrued(known, time), accrued(known, surely), _open(slice))


def _open(slice: Slice) -> bool:
    return slice.ready_at is not None and slice.gone_at is None


def usd_of_slice(slice: Slice, now: float) -> float | None:
    """What it has cost so far, in US dollars; None when it is billed at a price that is not known."""
    micros = bill(slice, now).most
    return None if micros is None else micros / US


def usd_of_job(job: Job, now: float) -> float | None:
    """What all its slices have cost so far, in US dollars; None when one of them has no known price."""
    bills = [0 if free(job, s) else bill(s, now).most for s in job.slices]
    known = [micros for micros in bills if micros is not None]
    return sum(known) / US if len(known) == len(bills) else None


#: job and slice, by name
Key = tuple[str, str]
#: generation, zone and pricing, which a grant names
Where = tuple[str, str, str]


def where(type: str, zone: str, pricing: str) -> Where:
    return accelerators.find(type).generation, zone, pricing


def granted(grants: Iterable[Grant], there: Where) -> int:
    """Chips that these grants have there."""
    return sum(g.chips for g in grants if (g.generation, g.zone, g.pricing) == there)


def chips(slice: Slice) -> int:
    return accelerators.find(slice.type).chips * slice.tpu_slices


class Granted(Protocol):
    """What of a job says which of its slices a grant pays for."""

    @property
    def id(self) -> str: ...
    @property
    def grants(self) -> tuple[Grant, ...]: ...
    @property
    def slices(self) -> tuple[Slice, ...]: ...


def covered(jobs: Iterable[Granted]) -> frozenset[Key]:
    """The slices that a grant pays for. In the order in which they became ready: a slice is covered whole, for as long
    as it lives, if it fits beside those that are covered already. One that comes later takes nothing from it."""
    asking: dict[Where, list[tuple[float, str, str, Slice, int]]] = defaultdict(list)
    for job in jobs:
        for one in job.slices if job.grants else ():
            there = where(one.type, one.zone, one.pricing)
            most = granted(job.grants, there)
            if most and one.ready_at is not None:
                asking[there].append((one.ready_at, job.id, one.name, one, most))
    return frozenset(key for these in asking.values() for key in _fitting(these))


def in_use(jobs: Sequence[Job]) -> Counter[Where]:
    """Chips of slices that are there and that a grant pays for."""
    paid, found = covered(jobs), Counter[Where]()
    for job in jobs:
        for one in job.slices:
            if one.gone_at is None and (job.id, one.name) in paid:
                found[where(one.type, one.zone, one.pricing)] += chips(one)
    return found


def _fitting(asking: list[tuple[float, str, str, Slice, int]]) -> list[Key]:
    found: list[Key] = []
    living: list[tuple[float, int]] = []  #: end and chips of each that is covered
    used = 0
    for ready_at, job_id, name, one, granted in sorted(asking, key=lambda each: each[:3]):
        while living and living[0][0] <= ready_at:
            used -= heapq.heappop(living)[1]
        if used + chips(one) <= granted:
            used += chips(one)
            heapq.heappush(living, (math.inf if one.gone_at is None else one.gone_at, chips(one)))
            found.append((job_id, name))
    return found
