"""Recent use of owners and shares, in micro-dollars at the price of each slice, which halve in HALF_LIFE.

The rule is Slurm's fair share: a factor of 2^(-age / half-life), 7 days by default. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log

from tpujob.domain.capacity.run_lengths import Lengths, charged, usual
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice

HALF_LIFE = 7 * 86_400.0
_FADE = log(2) / HALF_LIFE


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """Decayed micro-dollars at one moment: of owners by (share, owner), and of shares; and how long jobs take."""

    owners: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    lengths: Lengths = field(default_factory=dict[tuple[str, str], float])


def used(job: Job, now: float, lengths: Lengths) -> float:
    """Return the micro-dollars that the job's slices count for at `now`: for each, the integral of rate times fading. A
    slice that is held or requested counts for at least the time that is charged, so that 100 jobs of one owner do not
    start before the first has used anything."""
    if not job.slices:
        return 0.0
    known = usual(lengths, job.submitter, job.group, job.spec.run.program)
    seconds = charged(job.spec.time or 0.0, known)
    return sum((_faded(slice, now, seconds) for slice in job.slices), 0.0)


def _faded(slice: Slice, now: float, seconds: float) -> float:
    per_second = rate(slice.usd_per_hour, accelerators.chips_of(slice))
    ready = now if slice.ready_at is None else min(slice.ready_at, now)
    if slice.gone_at is not None:
        if slice.ready_at is None:
            return 0.0
        end = max(ready, min(slice.gone_at, now))  # clocks differ, and are set
        return per_second * (exp(-_FADE * (now - end)) - exp(-_FADE * (now - ready))) / _FADE
    counted = per_second * (1 - exp(-_FADE * (now - ready))) / _FADE
    return max(counted, per_second * seconds)


def rate(usd_per_hour: float | None, chips: int) -> float:
    """Return the micro-dollars that a slice counts for in a second: without a known price, a dollar per chip-hour."""
    return (chips if usd_per_hour is None else usd_per_hour) * 1e6 / 3600


def fade(amount: float, seconds: float) -> float:
    """Return an amount as it counts `seconds` later."""
    return amount * exp(-_FADE * max(0.0, seconds))


def sums(parts: Iterable[tuple[str, str, float]], lengths: Lengths) -> RecentUsage:
    """Return the usage of owners and shares, from parts of (share, owner, micro-dollars)."""
    owners, shares = defaultdict[tuple[str, str], float](float), defaultdict[str, float](float)
    for share, owner, amount in parts:
        owners[share, owner] += amount
        shares[share] += amount
    return RecentUsage(dict(owners), dict(shares), lengths)
