"""What a cause costs, and how long to wait after it. Budgets are separate: spending one never uses up another."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpujob.domain.model import Cause, Job


@dataclass(frozen=True, slots=True)
class Policy:
    """The rule for one cause."""

    budget: str  #: the counter in `Job.spent`; empty: never tried again
    limit: str = ""  #: the field of `recovery:` that bounds it; empty: no bound
    first: float = 0.0  #: seconds before the first retry; doubled each time
    most: float = 0.0
    same_slice: bool = False  #: the slice is not to blame: start again on it


_PREEMPTED = Policy("preemptions", "preemptions", first=1, most=60)
_FAILED = Policy("failures", "failures", first=5, most=300)
_CRASHED = Policy("failures", "failures", first=5, most=300, same_slice=True)
_NEVER = Policy("")

POLICIES: Mapping[Cause, Policy] = {
    Cause.PREEMPTED: _PREEMPTED,
    Cause.MAINTENANCE: _PREEMPTED,
    Cause.LOST_CONTACT: _PREEMPTED,
    Cause.STOCKOUT: Policy("stockouts", first=15, most=600),
    Cause.QUOTA: Policy("quota", first=60, most=900),
    Cause.CRASH: _CRASHED,
    Cause.HANG: _CRASHED,
    Cause.OOM_HOST: _CRASHED,
    Cause.OOM_HBM: _CRASHED,
    Cause.SETUP: _CRASHED,
    Cause.TPU_BUSY: _FAILED,
    Cause.BAD_HOST: _FAILED,
    Cause.PREFLIGHT: _FAILED,
    Cause.NONFINITE: _NEVER,
    Cause.PERMISSION: _NEVER,
    Cause.BAD_SPEC: _NEVER,
    Cause.BUDGET: _NEVER,
    Cause.CANCELLED: _NEVER,
}


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after `delay` seconds; `budget` is spent by one."""

    budget: str
    delay: float
    same_slice: bool
    left: int | None  #: how many more such retries there are; None: no bound


@dataclass(frozen=True, slots=True)
class GiveUp:
    why: str


def after(job: Job, cause: Cause) -> Again | GiveUp:
    """What follows an end with `cause`, given what the job has spent."""
    policy = POLICIES[cause]
    if not policy.budget:
        return GiveUp(f"{cause} is not tried again")
    used = job.spent.get(policy.budget, 0)
    limit = _limit(job.spec, policy.limit)
    if limit is not None and used >= limit:
        allowed = f"{limit} {policy.limit if limit != 1 else policy.limit.removesuffix('s')}"
        return GiveUp(f"{allowed} allowed by `recovery.{policy.limit}`, all used")
    return Again(
        budget=policy.budget,
        delay=backoff(policy, used, seed=f"{job.id}:{policy.budget}:{used}"),
        same_slice=policy.same_slice,
        left=None if limit is None else limit - used - 1,
    )


def backoff(policy: Policy, used: int, *, seed: str) -> float:
    """Seconds: doubled each time up to `most`, then up to a quarter more or less, the same for the same seed."""
    plain = min(policy.most, policy.first * 2.0 ** min(used, 30))
    return round(plain * (0.75 + 0.5 * (zlib.crc32(seed.encode()) % 1000) / 999), 2)


def _limit(spec: Mapping[str, Any], name: str) -> int | None:
    return int(spec["recovery"][name]) if name else None
