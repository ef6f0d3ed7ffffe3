"""What interrupts an attempt, or ends it: the user's wish, the state of its slice, the program itself.

Pure. Each function gives a decision, or None while the attempt goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpujob.domain.actions import Decision, StopProgram
from tpujob.domain.decide import attempt_end, releasing
from tpujob.domain.decide.condemned import LOST
from tpujob.domain.decide.looks import host_count, reports_of, serving
from tpujob.domain.failures import stall, triage
from tpujob.domain.model import Cause, EventKind, Job, Outcome, Wish
from tpujob.domain.observations import Absent, Present, Report, Seen, SliceState

#: a report that is late by no more than this many seconds comes from a host that still lives
LATE = 5.0

_E = EventKind


def interrupted(job: Job, seen: Seen, now: float) -> Decision | None:
    """What the user's wish or the slice's state asks for, whatever the program does."""
    if job.wish is not Wish.RUN:
        return Decision(attempt_end.hold(job, now, reports_of(seen)), StopProgram(), wake_in=1)
    slice_seen = serving(job, seen)
    slice = job.slice
    match slice_seen:
        case Present(state) if state in LOST:
            if _still_saving(seen):
                return Decision(wake_in=1)
            reports = reports_of(seen)
            lost = _lost_slice(job, slice_seen, reports)
            return Decision(attempt_end.end_attempt(job, lost, reports, now), wake_in=0)
        case Absent() if slice:
            if not releasing.missing_twice(slice, now):
                return releasing.look_again(job, slice, now)
            cause = Cause.PREEMPTED if slice.pricing == "spot" else Cause.LOST_CONTACT
            lost = triage.End(Outcome.INTERRUPTED, cause, None, releasing.vanished(slice))
            return Decision(attempt_end.end_attempt(job, lost, reports_of(seen), now), wake_in=0)
        case Present() if slice and (found := releasing.note_found(job, slice, now)):
            return Decision(found, wake_in=1)
        case _:
            return None


def ended(job: Job, reports: Sequence[Report], now: float) -> Decision | None:
    end = triage.ended(reports, host_count(job))
    if end is None:
        return None
    happened = attempt_end.end_attempt(job, end, reports, now)
    condemns = happened.kind is _E.ATTEMPT_CONDEMNED
    stop = StopProgram(attempt_end.slice_name(job)) if condemns else None
    return Decision(happened, stop, wake_in=0)


def stalled(job: Job, seen: Seen, reports: Sequence[Report], now: float) -> Decision | None:
    """A program that neither ends nor goes on. Nothing is concluded while the cloud itself cannot be asked: it may be
    us who are cut off."""
    if not isinstance(serving(job, seen), Present):
        return None
    heard = in_touch(job, seen)
    end = (
        (stall.silent(reports, seen.silent, seen.report_every) if heard else None)
        or stall.left_behind(reports, host_count(job))
        or stall.hung(job.spec.recovery.stall, reports)
    )
    return Decision(attempt_end.end_attempt(job, end, reports, now), wake_in=0) if end else None


def in_touch(job: Job, seen: Seen) -> bool:
    """Whether silence is the hosts' own: the cloud answers, and the storage has for a while. After an outage of it
    every report is old, and hosts get the time to write anew."""
    return isinstance(serving(job, seen), Present) and seen.readable_for >= releasing.SECOND_LOOK


def _lost_slice(job: Job, lost: Present, reports: Sequence[Report]) -> triage.End:
    says = (f"the cloud says of {attempt_end.slice_name(job)}: {lost.detail or lost.state}",)
    if lost.state is SliceState.PREEMPTED:
        saved = triage.saved_words(reports)
        message = f"{attempt_end.slice_name(job)} was preempted" + (f"; {saved}" if saved else "")
        return triage.End(Outcome.INTERRUPTED, Cause.PREEMPTED, None, message, says)
    detail = f": {lost.detail}" if lost.detail else ""
    cause = lost.cause or Cause.LOST_CONTACT
    message = f"{attempt_end.slice_name(job)} is {lost.state}{detail}"
    return triage.End(Outcome.INTERRUPTED, cause, None, message, says)


def _still_saving(seen: Seen) -> bool:
    """A preempted host that still reports is still saving: it is not cut off."""
    alive = seen.report_every + LATE
    return any(r.phase != "exited" and r.age < alive for r in reports_of(seen))
