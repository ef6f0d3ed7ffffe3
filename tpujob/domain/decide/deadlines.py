"""What a job's deadline requires beside requests: to note that it is missed, and to return to cheaper slices. Pure.

What it may request is in `domain/capacity/deadline.py`.
"""

from collections.abc import Sequence

from tpujob.domain.actions import Decision, StopProgram
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.deadline import deadline_of, preemptible
from tpujob.domain.decide import holding
from tpujob.domain.events import EventKind
from tpujob.domain.lifecycle import event
from tpujob.domain.model import DesiredState, Job, State
from tpujob.domain.observations import HostReport, Observation, Present, SliceState
from tpujob.domain.text import utc


def note_missed(job: Job, now: float) -> Decision | None:
    """Store, once, that the deadline is missed. The job continues."""
    finish_by = job.spec.finish_by
    if job.expected is None or finish_by is None or job.missed_at is not None or now < finish_by:
        return None
    ended = job.state is State.RELEASING and job.next_state is not State.QUEUED
    if job.state.final or ended or job.desired is not DesiredState.RUN:
        return None
    text = f"missed its deadline, {utc(finish_by)}; it continues"
    return Decision(event(job, EventKind.DEADLINE_MISSED, now, text), wake_in=0)


def go_back(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> Decision | None:
    """Give up a slice that cannot be preempted while the work, up to the kept checkpoint, is ahead of the line, and the
    job may request a preemptible slice. A job with a limit of starts keeps its slice, as another start uses one."""
    facts, look = deadline_of(job), seen.serving(job)
    ready = isinstance(look, Present) and look.state is SliceState.READY
    if facts is None or job.slice is None or preemptible(job.slice) or not ready:
        return None
    if job.spec.recovery.attempts is not None:
        return None
    if not facts.may_wait(now) or any(r.notice for r in reports):
        return None
    cheap = [o for o in circuits.allowed(job, seen.prices) if preemptible(o)]
    if circuits.pick(cheap, seen.circuits, now) is None:
        return None
    why = f"ahead of its deadline, it returns to {cheap[0].pricing}"
    return Decision(holding.go_back(job, why, reports, now), StopProgram(), wake_in=1)
