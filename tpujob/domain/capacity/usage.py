"""Recent use of owners and shares, in micro-dollars at the price of each slice, which halve in HALF_LIFE.

The rule is Slurm's fair share: a factor of 2^(-age / half-life), 7 days by default. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice

HALF_LIFE = 7 * 86_400.0
_FADE = log(2) / HALF_LIFE
#: seconds for which a job is charged at the assignment of a slice, if its file has no `time`
EXPECTED = 3600.0


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """Decayed micro-dollars at one moment: of owners by (share, owner), and of shares."""

    owners: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    shares: Mapping[str, float] = field(default_factory=dict[str, float])


def used(job: Job, now: float) -> float:
    """Return the micro-dollars that the job's slices count for at `now`: for each, the integral of rate times fading. A
    slice that is held or requested counts for at least the job's expected time, so that 100 jobs of one owner do not
    start before the first has used anything."""
    return sum((_faded(job, slice, now) for slice in job.slices), 0.0)


def _faded(job: Job, slice: Slice, now: float) -> float:
    least = charge(slice.usd_per_hour, accelerators.chips_of(slice), job)
    per_second = least / _expected(job)
    ready = now if slice.ready_at is None else min(slice.ready_at, now)
    if slice.gone_at is not None:
        if slice.ready_at is None:
            return 0.0
        end = max(ready, min(slice.gone_at, now))  # clocks differ, and are set
        return per_second * (exp(-_FADE * (now - end)) - exp(-_FADE * (now - ready))) / _FADE
    counted = per_second * (1 - exp(-_FADE * (now - ready))) / _FADE
    return max(counted, least)


def charge(usd_per_hour: float | None, chips: int, job: Job) -> float:
    """Return the micro-dollars that a slice counts for at its assignment: without a known price, a dollar per chip."""
    per_hour = chips if usd_per_hour is None else usd_per_hour
    return per_hour * 1e6 * _expected(job) / 3600


def _expected(job: Job) -> float:
    return float(job.spec.time or EXPECTED)


def fade(amount: float, seconds: float) -> float:
    """Return an amount as it counts `seconds` later."""
    return amount * exp(-_FADE * max(0.0, seconds))


def sums(parts: Iterable[tuple[str, str, float]]) -> RecentUsage:
    """Return the usage of owners and shares, from parts of (share, owner, micro-dollars)."""
    owners, shares = defaultdict[tuple[str, str], float](float), defaultdict[str, float](float)
    for share, owner, amount in parts:
        owners[share, owner] += amount
        shares[share] += amount
    return RecentUsage(dict(owners), dict(shares))
