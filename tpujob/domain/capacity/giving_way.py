"""Giving way: which jobs of low priority stop, so that the chips suffice for a job of a higher priority. Pure.

A job gives way by the priority in its file: one that counts as of a higher one after a day neither takes chips in this
way nor keeps its own. So two jobs never make each other give way.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from tpujob.domain.model import DesiredState, Job, State
from tpujob.domain.spec.queue import BANDS

#: index in BANDS of the jobs that give way
LOW = len(BANDS) - 1
#: minimum seconds for which the program of an attempt runs before its job gives way
LEAST_RUN = 1200.0
#: minimum seconds between two times that a job gives way
AGAIN = 3600.0


class Holder(NamedTuple):
    """A job that may give way, and what it holds."""

    began: float  #: when its program began to run; of a request, which loses nothing, inf
    number: int
    chips: int
    id: str


def gives_way_at(job: Job) -> float:
    """Return from when on the job gives way; inf: it does not. Its start is billed and gives nothing, so that it gives
    way before it has a slice, or when its program has run for LEAST_RUN. A job with a limit of starts keeps its slice,
    as another start uses one."""
    attempt = job.attempt
    if (
        BANDS.index(job.spec.priority) != LOW
        or job.desired is not DesiredState.RUN
        or job.next_state is not None
        or job.spec.recovery.attempts is not None
    ):
        return inf
    if job.state is State.PROVISIONING:
        runs_since = 0.0
    elif job.state is State.RUNNING and attempt and attempt.running_at is not None:
        runs_since = attempt.running_at + LEAST_RUN
    else:
        return inf
    return max(runs_since, *(s.gave_way.at + AGAIN for s in job.slices if s.gave_way), 0.0)


def gives_way_to(job: Job) -> str:
    """Return the id of the job for which this one is giving up its slice; empty: for none."""
    leaves = job.state in (State.HOLDING, State.RELEASING)
    return job.slice.gave_way.to if leaves and job.slice and job.slice.gave_way else ""


def choose(chips: int, holders: Iterable[Holder]) -> list[Holder]:
    """Return the jobs that give way so that `chips` more are free: those that began last, as they lose least, and none
    that is not needed; empty: all of them together are not enough."""
    chosen: list[Holder] = []
    for holder in sorted(holders, reverse=True):
        if chips <= 0:
            break
        chosen.append(holder)
        chips -= holder.chips
    if chips > 0:
        return []
    needed = chosen[::-1]  # the one that loses most is spared first
    for holder in chosen[::-1]:
        if holder.chips <= -chips:
            needed.remove(holder)
            chips += holder.chips
    return needed[::-1]
