"""The state machine: one table `(State, event) -> State`, and how each event changes the record.

Rules about *when* an event happens are in `decide/`. Only `apply` changes a stored job, so the stored events, applied
to the first record one by one, give the record again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpujob.domain.copies import Copy
from tpujob.domain.events import (
    OBSERVED,
    PAYLOADS,
    AboutSlice,
    Annotation,
    AttemptEnded,
    AttemptRepeated,
    AttemptRunning,
    BudgetChanged,
    BudgetWarned,
    CandidateLost,
    CandidatePromoted,
    CleanRequested,
    CopyMoved,
    CopyRefused,
    CopyStarted,
    Event,
    EventKind,
    Finished,
    GroupExtended,
    HandedOver,
    Payload,
    Progressed,
    QueueMoved,
    ReleaseStarted,
    ReportsIgnored,
    Requeued,
    SliceBilled,
    SliceHandedOn,
    SliceHeld,
    SliceKept,
    SliceReady,
    SliceReceived,
    SliceRequested,
    Warned,
    Watched,
)
from tpujob.domain.failures.starts import OVERTAKEN
from tpujob.domain.model import (
    REFUSALS,
    Attempt,
    Cause,
    DesiredState,
    End,
    GaveWay,
    IdlePeriod,
    Job,
    Outcome,
    Slice,
    SliceRole,
    State,
)
from tpujob.domain.progress import resume_before

_S, _E = State, EventKind
_WITH_SLICE = (_S.PROVISIONING, _S.PREPARING, _S.RUNNING, _S.HOLDING)
_WITH_PROGRAM = (_S.PREPARING, _S.RUNNING)
_LIVE = (_S.QUEUED, *_WITH_SLICE, _S.RELEASING)

TABLE: Mapping[tuple[State, EventKind], State] = {
    **{
        (_S.QUEUED, kind): _S.QUEUED
        for kind in (_E.COPY_STARTED, _E.COPY_ADVANCED, _E.COPY_FINISHED, _E.COPY_REFUSED)
    },
    (_S.QUEUED, _E.SLICE_REQUESTED): _S.PROVISIONING,
    (_S.PROVISIONING, _E.SLICE_WAITING): _S.PROVISIONING,
    (_S.PROVISIONING, _E.SLICE_CREATING): _S.PROVISIONING,
    (_S.PROVISIONING, _E.SLICE_READY): _S.PREPARING,
    (_S.PROVISIONING, _E.CANDIDATE_REQUESTED): _S.PROVISIONING,
    (_S.PROVISIONING, _E.CANDIDATE_PROMOTED): _S.PROVISIONING,
    **{(s, _E.CANDIDATE_LOST): s for s in (_S.PROVISIONING, _S.PREPARING)},
    (_S.PREPARING, _E.ATTEMPT_RUNNING): _S.RUNNING,
    **{(s, _E.PROGRESSED): s for s in (_S.RUNNING, _S.HOLDING)},
    (_S.RUNNING, _E.LOSS_NONFINITE): _S.RUNNING,
    (_S.RUNNING, _E.LOSS_FINITE): _S.RUNNING,
    **{(s, kind): s for s in _WITH_PROGRAM for kind in (_E.WATCHED, _E.REPORTS_IGNORED)},
    (_S.RUNNING, _E.WARNED): _S.RUNNING,
    **{(s, _E.ATTEMPT_ENDED): _S.RELEASING for s in (*_WITH_PROGRAM, _S.HOLDING)},
    **{(s, _E.ATTEMPT_RETRIED): _S.PREPARING for s in _WITH_PROGRAM},
    **{(s, _E.ATTEMPT_CONDEMNED): _S.QUEUED for s in _WITH_PROGRAM},
    (_S.PREPARING, _E.ATTEMPT_SWAPPED): _S.PROVISIONING,
    **{(s, _E.CONDEMNED_STOPPED): s for s in _LIVE},
    **{(s, _E.HELD): _S.HOLDING for s in (_S.PROVISIONING, *_WITH_PROGRAM)},
    (_S.HOLDING, _E.PROGRAM_STOPPED): _S.HOLDING,
    (_S.HOLDING, _E.RESUMED): _S.PREPARING,
    **{(s, _E.SLICE_MISSING): s for s in _LIVE},
    **{(s, _E.SLICE_FOUND): s for s in _LIVE},
    **{(s, _E.SLICE_BILLED): s for s in _LIVE},
    **{(s, _E.RELEASE_STARTED): _S.RELEASING for s in (_S.PROVISIONING, _S.HOLDING)},
    # outside of RELEASING: of a condemned slice, or of a candidate that lost
    **{(s, _E.SLICE_SUSPENDING): s for s in _LIVE},
    **{(s, _E.DELETE_ASKED): s for s in _LIVE},
    **{(s, _E.SLICE_GONE): s for s in _LIVE},
    (_S.RELEASING, _E.SLICE_KEPT): _S.RELEASING,
    **{(s, _E.SLICE_HANDED_ON): s for s in (*_WITH_PROGRAM, _S.RELEASING)},
    (_S.QUEUED, _E.SLICE_RECEIVED): _S.PREPARING,
    (_S.RELEASING, _E.REQUEUED): _S.QUEUED,
    (_S.RELEASING, _E.SUCCEEDED): _S.SUCCEEDED,
    (_S.RELEASING, _E.FAILED): _S.FAILED,
    (_S.RELEASING, _E.CANCELLED): _S.CANCELLED,
    (_S.QUEUED, _E.GROUP_EXTENDED): _S.QUEUED,
    (_S.QUEUED, _E.SUCCEEDED): _S.SUCCEEDED,  # of a group, which has no slice
    (_S.QUEUED, _E.FAILED): _S.FAILED,
    (_S.QUEUED, _E.CANCELLED): _S.CANCELLED,
    **{(s, _E.CANCEL_REQUESTED): s for s in _LIVE},
    **{(s, _E.RELEASE_REQUESTED): s for s in _LIVE},
    **{(s, _E.RESUME_REQUESTED): s for s in _LIVE},
    (_S.FAILED, _E.RESUME_REQUESTED): _S.QUEUED,
    (_S.CANCELLED, _E.RESUME_REQUESTED): _S.QUEUED,
    (_S.FAILED, _E.GROUP_REOPENED): _S.QUEUED,
    (_S.CANCELLED, _E.GROUP_REOPENED): _S.QUEUED,
    **{(s, _E.CLEAN_REQUESTED): s for s in State},
    **{(s, _E.BUDGET_WARNED): s for s in _LIVE},
    **{(s, _E.BUDGET_CHANGED): s for s in State},
    **{(s, _E.DEADLINE_MISSED): s for s in _LIVE},
    # of a job that has a slice: for when it is queued again
    **{(s, kind): s for s in _LIVE for kind in (_E.QUEUE_HELD, _E.QUEUE_RELEASED, _E.QUEUE_MOVED)},
    **{(s, _E.REQUEUE_REQUESTED): s for s in _WITH_PROGRAM},
    **{(s, kind): s for s in State for kind in (_E.HANDED_OVER, _E.ANNOTATED)},
}


class IllegalEvent(Exception):
    """An event that the table does not allow in that state: a mistake of the code that made it."""


def next_state(state: State, kind: EventKind) -> State:
    """Return the state that an event leads to. Raise IllegalEvent if the table does not allow it."""
    try:
        return TABLE[state, kind]
    except KeyError:
        raise IllegalEvent(f"{kind} cannot happen to a job that is {state}") from None


def event(
    job: Job, kind: EventKind, at: float, text: str, payload: Payload | None = None, *, by: str = ""
) -> Event:
    """Return the event `kind` for `job`, with the state that it causes. `by`: name of the person who requested it."""
    state = next_state(job.state, kind)
    assert type(payload) is PAYLOADS.get(kind, type(None)), f"{kind} does not carry {payload}"
    return Event(kind, at, state, text, payload, by)


def apply(job: Job, event: Event) -> Job:
    """Return `job` after the event, with its old version: the store increments it."""
    state = next_state(job.state, event.kind)
    changed = _folded(with_billed(job, event.billed) if event.billed else job, event)
    since = event.at if state is not job.state else job.state_since
    finished = event.at if state.final and not job.state.final else changed.finished_at
    return replace(
        changed,
        state=state,
        state_since=since,
        finished_at=finished if state.final else None,
        message=event.text if event.kind not in _QUIET else changed.message,
    )


#: number of attempts before the newest that keep their lines of evidence in the record; the events keep all lines
PROVEN = 20

#: events whose text does not become the job's message
_QUIET = OBSERVED | frozenset(
    {
        _E.CONDEMNED_STOPPED,
        _E.DELETE_ASKED,
        _E.SLICE_GONE,
        _E.SLICE_BILLED,
        _E.CLEAN_REQUESTED,
        _E.BUDGET_WARNED,
        _E.BUDGET_CHANGED,
        _E.DEADLINE_MISSED,
        _E.QUEUE_HELD,
        _E.QUEUE_RELEASED,
        _E.QUEUE_MOVED,
        _E.HANDED_OVER,
        _E.ANNOTATED,
    }
)


# How each event changes the record -----------------------------------------------------------------------------------


def _folded(job: Job, event: Event) -> Job:
    at, reason = event.at, event.text
    match event.payload:
        case CopyStarted() as wanted:
            return replace(job, copies=(*job.copies, Copy(started_at=at, **_fields(wanted))))
        case CopyMoved(id, progress):
            done_at = at if event.kind is _E.COPY_FINISHED else None
            return _change_copy(job, id, progress=progress, done_at=done_at)
        case CopyRefused(id, cause, error):
            return _change_copy(job, id, refused=cause.value, error=error)
        case SliceRequested() as asked:
            beside = event.kind is _E.CANDIDATE_REQUESTED
            role = SliceRole.CANDIDATE if beside else SliceRole.SERVING
            return _with_slice(job, Slice(requested_at=at, role=role, **_fields(asked)))
        case SliceReady(slice=name, runners_up=runners_up) as seen:
            chosen = _promote(_change_serving(job, role=SliceRole.CANDIDATE), name) if name else job
            ready = _with_endpoints(_lose_race(chosen, at, reason, but=runners_up), at, seen)
            return _new_attempt(replace(ready, retries_used=_after_waiting(job)), at)
        case CandidateLost(name):
            return _change_slice(job, name, **_lost(event.payload, at, reason))
        case CandidatePromoted(name, failed):
            lost = _change_serving(job, role=SliceRole.CANDIDATE, **_lost(failed, at, reason))
            return _promote(lost, name)
        case SliceHandedOn(name, to):
            return _change_slice(job, name, gone_at=at, handed_to=to)
        case SliceReceived(slice):
            received = replace(_with_slice(job, slice), wake=at, retries_used=_after_waiting(job))
            return _new_attempt(received, at)
        case AboutSlice() as about:
            return _change_slice(job, about.slice, **_about_slice(event.kind, about, at))
        case SliceBilled() as billed:
            return with_billed(job, billed)
        case AttemptRunning(versions, running_at):
            since = at if running_at is None else running_at
            return _change_attempt(_lose_race(job, at, reason), running_at=since, versions=versions)
        case Progressed(progress, first, running_at):
            noted = {"first_step_at": at, "first_step": progress.step} if first else {}
            noted |= {} if running_at is None else {"running_at": running_at}
            return _change_attempt(job, progress=progress, progress_at=at, **noted)
        case Watched(watch):
            return _change_attempt(job, watch=watch)
        case ReportsIgnored(ignored):
            return _change_attempt(job, ignored=ignored)
        case Warned(warnings):
            return _change_attempt(job, warnings=warnings)
        case AttemptEnded(end, then, budget):
            return _leaving(_end_attempt(job, at, end), then, end.cause, budget, reason, at)
        case AttemptRepeated(end, delay, budget, promoted):
            ended = replace(_take_retry(_end_attempt(job, at, end), budget), wake=at + delay)
            if event.kind is _E.ATTEMPT_RETRIED:
                return _new_attempt(ended, at)
            swapped = _condemned(ended, at, reason)
            return _promote(swapped, promoted) if promoted else _lose_race(swapped, at, reason)
        case SliceHeld(until, end, next_state=then, gives_way_to=to) as seen:
            job = _given_way(job, at, to)
            held = _end_attempt(job, at, end) if end else _with_endpoints(job, at, seen)
            cause = end.cause if end and then is State.FAILED else held.cause
            return replace(
                _lose_race(held, at, reason),
                hold_until=until,
                stopped=end is None,
                next_state=then,
                cause=cause,
            )
        case SliceKept(until):
            return replace(job, hold_until=until)
        case ReleaseStarted(then, cause, budget, refused, scope, limit, to):
            refused_as = {"refused": refused, "refused_scope": scope, "refused_limit": limit}
            refused_job = _change_serving(job, **refused_as) if refused else job
            return _leaving(_given_way(refused_job, at, to), then, cause, budget, reason, at)
        case Requeued(delay):
            return replace(job, wake=at + delay, next_state=None, cause=None, hold_until=None)
        case Finished(cause):
            outcome = _OUTCOMES[event.kind]
            return replace(job, outcome=outcome, cause=cause, next_state=None, hold_until=None)
        case BudgetWarned(limit):
            return replace(job, warned_limit=limit)
        case BudgetChanged(limit):
            return _budget_changed(job, limit)
        case GroupExtended(made):
            return replace(job, submitted=made)
        case CleanRequested(checkpoints):
            return replace(job, desired=DesiredState.CLEAN, wipe_checkpoints=checkpoints)
        case QueueMoved(rank):
            return replace(job, rank=rank)
        case HandedOver(owner, user):
            # the owner's own hold is then the new owner's, who could not release a hold of someone else
            held_by = user if job.held_by == job.user else job.held_by
            return replace(job, owner=owner, user=user, held_by=held_by)
        case Annotation(note, tags):
            return replace(job, note=note, tags=tags)
        case None:
            return _without_payload(job, event)


def _without_payload(job: Job, event: Event) -> Job:
    at = event.at
    match event.kind:
        case _E.SLICE_WAITING | _E.SLICE_CREATING:
            return _change_serving(job, in_queue=event.kind is _E.SLICE_WAITING)
        case _E.PROGRAM_STOPPED:
            return replace(job, stopped=True)
        case _E.RESUMED:
            return _new_attempt(replace(job, stopped=True, next_state=None, cause=None), at)
        case _E.CANCEL_REQUESTED:
            return replace(job, desired=DesiredState.CANCEL, wipe_checkpoints=False)
        case _E.RELEASE_REQUESTED:
            return replace(job, desired=DesiredState.RELEASE, wipe_checkpoints=False)
        case _E.RESUME_REQUESTED:
            return _resume_requested(job, at)
        case _E.GROUP_REOPENED:
            return replace(job, outcome=None, cause=None, wake=at)
        case _E.REQUEUE_REQUESTED:
            return replace(job, next_state=State.QUEUED, queued_at=at, rank=0)
        case _E.DEADLINE_MISSED:
            return replace(job, missed_at=at)
        case _E.QUEUE_HELD:
            return replace(job, held_by=event.by)
        case _E.QUEUE_RELEASED:
            waits = job.state is State.QUEUED
            return replace(job, held_by="", queued_at=at if waits else job.queued_at)
        case _:
            return job


_OUTCOMES: Mapping[EventKind, Outcome] = {
    _E.SUCCEEDED: Outcome.SUCCEEDED,
    _E.FAILED: Outcome.FAILED,
    _E.CANCELLED: Outcome.INTERRUPTED,
}


def _about_slice(kind: EventKind, about: AboutSlice, at: float) -> dict[str, Any]:
    """Return the fields of the slice's record that the event changes."""
    certain = {"certain_until": about.certain_until}
    return {
        _E.SLICE_MISSING: {"missing_since": at, **certain},
        _E.SLICE_FOUND: {"missing_since": None, **certain},
        _E.CONDEMNED_STOPPED: {"stopped": True},
        _E.SLICE_SUSPENDING: {"suspending_since": at},
        _E.DELETE_ASKED: {"delete_asked_at": at},
        _E.SLICE_GONE: {"gone_at": at},
    }[kind]


def with_billed(job: Job, billed: SliceBilled) -> Job:
    changes = {"preempted_at": billed.preempted_at, "certain_until": billed.certain_until}
    if billed.ready_at is not None:
        changes["ready_at"] = billed.ready_at
    if billed.endpoints:
        return _change_slice(job, billed.slice, endpoints=billed.endpoints, **changes)
    return _change_slice(job, billed.slice, **changes)


def _with_slice(job: Job, fresh: Slice) -> Job:
    """Return the job with one more slice, without its oldest requests that became none; the first of the wait shows its
    start."""
    refused = [
        s
        for s in job.slices
        if s.gone_at is not None and (s.refused or (s.lost_at is not None and s.ready_at is None))
    ]
    old = {s.k for s in refused[:-REFUSALS]} - {s.k for s in job.failed_requests[:1]}
    remaining = tuple(s for s in job.slices if s.k not in old)
    return replace(job, slices=(*remaining, fresh), next_state=None)


def _after_waiting(job: Job) -> Mapping[str, int]:
    """Return the used retry budgets without those of refusals: the job has got a slice."""
    return {k: v for k, v in job.retries_used.items() if k not in ("stockouts", "quota")}


def _with_endpoints(job: Job, at: float, ready: SliceReady | SliceHeld) -> Job:
    since = at if ready.ready_at is None else ready.ready_at
    return _change_serving(
        job,
        endpoints=ready.endpoints,
        ready_at=since,
        seen_at=None if since == at else at,
        ends_at=ready.ends_at,
        in_queue=False,
    )


def _promote(job: Job, name: str) -> Job:
    """Let a candidate serve. The job has no serving slice any more."""
    return _change_slice(job, name, role=SliceRole.SERVING)


def _lose_race(job: Job, at: float, reason: str, *, but: tuple[str, ...] = ()) -> Job:
    """Let every candidate lose, but those of these names."""
    for slice in job.candidates:
        if slice.name not in but:
            job = _change_slice(job, slice.name, **_lost(CandidateLost(""), at, reason))
    return job


def _lost(lost: CandidateLost, at: float, reason: str) -> dict[str, Any]:
    """Return the fields of a candidate's record that change as it loses."""
    refused_as = {"refused": lost.refused, "refused_scope": lost.scope, "refused_limit": lost.limit}
    return {"lost_at": at, "delete_reason": reason, "in_queue": False, **refused_as}


def _condemned(job: Job, at: float, reason: str) -> Job:
    swapped = _change_serving(job, role=SliceRole.CONDEMNED, condemned_at=at, delete_reason=reason)
    return replace(swapped, cause=None)


def _resume_requested(job: Job, at: float) -> Job:
    resumed = replace(job, desired=DesiredState.RUN, wipe_checkpoints=False)
    if not job.state.final and not job.spec.is_group:
        return resumed
    # a fresh start, with all retry budgets and without the earlier end
    rests = (
        job.idle_periods
        if job.finished_at is None
        else (*job.idle_periods, IdlePeriod(job.finished_at, at))
    )
    return replace(
        resumed, retries_used={}, outcome=None, cause=None, wake=at, fresh_at=at, idle_periods=rests
    )


def _budget_changed(job: Job, limit: int) -> Job:
    """Set the limit. A job that was ending for its budget continues: `spending.used_up` checks the new limit."""
    changed = replace(job, spend_limit=limit)
    if job.cause is not Cause.BUDGET or job.next_state is not State.FAILED:
        return changed
    then = State.QUEUED if job.state is State.RELEASING else None
    return replace(changed, next_state=then)


def _new_attempt(job: Job, at: float) -> Job:
    assert job.slice is not None
    fresh = Attempt(
        number=len(job.attempts) + 1,
        slice=job.slice.name,
        started_at=at,
        resume_before=resume_before(job),
    )
    older, newer = job.attempts[:-PROVEN], job.attempts[-PROVEN:]
    earlier = (*(replace(a, evidence=()) for a in older), *newer)
    return replace(job, attempts=(*earlier, fresh), hold_until=None)


def _fields(payload: CopyStarted | SliceRequested) -> dict[str, Any]:
    return {name: getattr(payload, name) for name in payload.__dataclass_fields__}


def _change_copy(job: Job, id: str, **changes: Any) -> Job:
    """Change the newest copy with that id: after a person's `resume` the same copy may begin again."""
    newest = max(n for n, copy in enumerate(job.copies) if copy.id == id)
    changed = (replace(c, **changes) if n == newest else c for n, c in enumerate(job.copies))
    return replace(job, copies=tuple(changed))


def _change_serving(job: Job, **changes: Any) -> Job:
    return _change_slice(job, job.slice.name, **changes) if job.slice else job


def _change_slice(job: Job, name: str, **changes: Any) -> Job:
    changed = tuple(replace(s, **changes) if s.name == name else s for s in job.slices)
    return replace(job, slices=changed)


def _change_attempt(job: Job, **changes: Any) -> Job:
    *earlier, last = job.attempts
    return replace(job, attempts=(*earlier, replace(last, **changes)))


def may_end(attempt: Attempt, outcome: Outcome | None) -> bool:
    """Return whether the outcome may be set: a set one stays, unless the program had succeeded before its stop."""
    late_success = outcome is Outcome.SUCCEEDED and attempt.cause in OVERTAKEN
    return attempt.outcome is None or late_success


def _end_attempt(job: Job, at: float, end: End) -> Job:
    if job.attempt is None or not may_end(job.attempt, end.outcome):
        return job
    since = job.attempt.running_at
    return _change_attempt(
        job,
        running_at=end.running_at if since is None else since,
        ended_at=at,
        outcome=end.outcome,
        cause=end.cause,
        host=end.host,
        message=end.message,
        evidence=end.evidence,
        progress=end.progress or job.attempt.progress,
        physical=end.physical,
        verdict=end.verdict,
        unreached=end.unreached,
        started=end.started,
        idle=end.idle,
        detail=end.detail,
        everywhere=end.everywhere,
        last_error=end.last_error,
        warnings=end.warnings or job.attempt.warnings,
    )


def _leaving(
    job: Job, then: State, cause: Cause | None, budget: str, reason: str, at: float
) -> Job:
    """Return the job as it enters RELEASING, with the state after that and the reason of the deletion."""
    left = _change_serving(_take_retry(job, budget), delete_reason=reason, in_queue=False)
    return replace(_lose_race(left, at, reason), next_state=then, cause=cause, hold_until=None)


def _given_way(job: Job, at: float, to: str) -> Job:
    return _change_serving(job, gave_way=GaveWay(to, at)) if to else job


def _take_retry(job: Job, budget: str) -> Job:
    if not budget:
        return job
    return replace(
        job, retries_used={**job.retries_used, budget: job.retries_used.get(budget, 0) + 1}
    )
