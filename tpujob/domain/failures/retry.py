"""Retry policy: which budget a cause uses, and the delay before the next attempt. Each budget is counted by itself."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpujob.domain.model import Cause, Job
from tpujob.domain.spec import Recovery
from tpujob.domain.text import duration
from tpujob.lib.tries import Backoff


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The rule for one cause."""

    budget: str  #: the counter in `Job.retries_used`; empty: the cause is never retried
    limit: str = ""  #: the field of `recovery:` that limits the retries; empty: no limit
    first: float = 0.0  #: seconds before the first retry; doubled each time
    most: float = 0.0  #: maximum of these seconds, before jitter
    same_slice: bool = False  #: the slice is not the cause: the program starts again on it
    #: the slice is the cause: the job must not get the same hardware again
    bad_slice: bool = False


#: maximum delay in seconds during which a slice is kept: a longer one costs more than another slice
KEEP = 600.0

#: number of attempts in a row that lost contact, each within SOON seconds of its start: the program may kill the hosts
KILLS, SOON = 4, 900.0

_PREEMPTED = RetryPolicy("preemptions", "preemptions", first=1, most=60)
_FAILED = RetryPolicy("failures", "failures", first=5, most=1200, same_slice=True)
_MEMORY = RetryPolicy("memory", "memory", first=5, most=5, same_slice=True)
_NEVER = RetryPolicy("")

POLICIES: Mapping[Cause, RetryPolicy] = {
    Cause.PREEMPTED: _PREEMPTED,
    Cause.MAINTENANCE: _PREEMPTED,
    Cause.LOST_CONTACT: _PREEMPTED,
    Cause.STOCKOUT: RetryPolicy("stockouts", first=15, most=600),
    Cause.QUOTA: RetryPolicy("quota", first=60, most=900),
    Cause.CRASH: _FAILED,
    Cause.SETUP: _FAILED,
    Cause.RESTART: RetryPolicy("restarts", "restarts", first=1, most=60, same_slice=True),
    Cause.HANG: RetryPolicy("hangs", "hangs", first=5, most=300, same_slice=True),
    Cause.OOM_HOST: _MEMORY,
    Cause.OOM_HBM: _MEMORY,
    Cause.TPU_BUSY: RetryPolicy("busy", "busy", first=5, most=60),
    Cause.BAD_HOST: RetryPolicy("bad_hosts", "bad_hosts", first=1, most=60, bad_slice=True),
    Cause.PREFLIGHT: RetryPolicy("preflights", "preflights", first=5, most=300, bad_slice=True),
    Cause.NONFINITE: RetryPolicy("nonfinite", "nonfinite", first=1, most=60, bad_slice=True),
    Cause.PERMISSION: _NEVER,
    Cause.OUTPUTS: _NEVER,  # a retry would repeat a finished program
    Cause.BAD_SPEC: _NEVER,
    Cause.BUDGET: _NEVER,
    Cause.TIME_LIMIT: _NEVER,
    Cause.PLANNED_END: RetryPolicy("planned_ends", "planned_ends", first=1, most=1),
    Cause.CANCELLED: _NEVER,
    Cause.GAVE_WAY: _NEVER,  # it is queued again without a retry
    Cause.DEPENDENCY: _NEVER,
}


@dataclass(frozen=True, slots=True)
class Again:
    """A retry after `delay` seconds, which uses one of `budget`; empty: it uses none."""

    budget: str
    delay: float
    same_slice: bool
    bad_slice: bool
    left: int | None  #: number of further retries of the budget; None: no limit, or no budget


@dataclass(frozen=True, slots=True)
class GiveUp:
    why: str


def after(job: Job, cause: Cause, late: bool = False, advanced: bool = False) -> Again | GiveUp:
    """Return what follows an end with `cause`, given the used budgets. `late`: a time limit passed, for which the slice
    is blamed only if the check fails on it a second time. `advanced`: the attempt got further than all before it, so
    that a restart which the program asked for is free."""
    policy = POLICIES[cause]
    if cause is Cause.RESTART and advanced:
        return Again("", policy.first, same_slice=True, bad_slice=False, left=None)
    if late and policy.bad_slice and not _failed_here_before(job, cause):
        policy = replace(policy, same_slice=True, bad_slice=False)
    if not policy.budget:
        return GiveUp(f"{cause} is not retried")
    used = job.retries_used.get(policy.budget, 0)
    limit = limit_of(policy, job.spec.recovery)
    if limit is not None and used >= limit:
        return GiveUp(_used_up(policy, limit))
    delay = backoff(policy, used, seed=f"{job.id}:{policy.budget}:{used}")
    return Again(
        budget=policy.budget,
        delay=delay,
        same_slice=policy.same_slice and delay <= KEEP,
        bad_slice=policy.bad_slice,
        left=None if limit is None else limit - used - 1,
    )


def _failed_here_before(job: Job, cause: Cause) -> bool:
    """Return whether an earlier attempt on the slice of the newest one ended with `cause`."""
    *earlier, newest = job.attempts
    return any(a.slice == newest.slice and a.cause is cause for a in earlier)


def kills_hosts(job: Job, now: float) -> str:
    """Return why a job that has just lost contact with its hosts is not retried; empty: it is. It is not when hosts of
    several slices in a row die soon after the program's start."""
    last = [a for a in job.attempts if a.started_at >= job.fresh_at][-KILLS:]
    lost = [a for a in last[:-1] if a.cause is Cause.LOST_CONTACT]
    ages = [(a.ended_at or now) - a.running_at for a in last if a.running_at is not None]
    if len(lost) < KILLS - 1 or len(ages) < KILLS or max(ages) > SOON:
        return ""
    return (
        f"the hosts of {KILLS} attempts in a row fell silent within {duration(SOON)} of the start: the program "
        "may be killing them; `tpujob resume` retries"
    )


#: seconds that no delay between two retries exceeds, waits for the answer of another job's request included
MAX_DELAY = 1800.0


def due_at(stored: float, now: float, longest: float = MAX_DELAY) -> float:
    """Return when something is due that was put off by at most `longest` seconds: at the stored time; now, if that time
    can only come from a clock that was ahead and is corrected since."""
    return now if stored - now > longest else stored


def backoff(policy: RetryPolicy, used: int, *, seed: str) -> float:
    """Return the seconds before a retry: `first`, doubled for each used one up to `most`, with up to a quarter more or
    less. The jitter is a function of the seed."""
    chance = zlib.crc32(seed.encode()) % 1000 / 999
    return round(Backoff(policy.first, policy.most).pause(used + 1, chance), 2)


def limit_of(policy: RetryPolicy, recovery: Recovery) -> int | None:
    """Return how often the cause may be retried; None: without limit."""
    return getattr(recovery, policy.limit) if policy.limit else None


def _used_up(policy: RetryPolicy, limit: int) -> str:
    if not limit:
        return f"no retry is allowed (`recovery.{policy.limit}` is 0)"
    retries = "1 retry" if limit == 1 else f"{limit} retries"
    return f"{retries} allowed by `recovery.{policy.limit}`, all used"
