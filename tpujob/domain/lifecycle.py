"""The state machine: one table `(State, event) -> State`, and how each event changes the record.

Rules about *when* an event happens are in `decide/`. `apply` is the only place that makes a new job out of an old
one, so the stored events, folded over the first record, give the record again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tpujob.domain.model import (
    Attempt,
    Cause,
    Endpoint,
    Event,
    EventKind,
    Job,
    Outcome,
    Progress,
    Role,
    Slice,
    State,
    Verdict,
    Wish,
)

_S, _E = State, EventKind
_WITH_SLICE = (_S.PROVISIONING, _S.PREPARING, _S.RUNNING, _S.HOLDING)
_WITH_PROGRAM = (_S.PREPARING, _S.RUNNING)
_LIVE = (_S.QUEUED, *_WITH_SLICE, _S.RELEASING)

TABLE: Mapping[tuple[State, EventKind], State] = {
    (_S.QUEUED, _E.SLICE_REQUESTED): _S.PROVISIONING,
    (_S.PROVISIONING, _E.SLICE_WAITING): _S.PROVISIONING,
    (_S.PROVISIONING, _E.SLICE_READY): _S.PREPARING,
    (_S.PREPARING, _E.ATTEMPT_RUNNING): _S.RUNNING,
    **{(s, _E.PROGRESSED): s for s in (_S.RUNNING, _S.HOLDING)},
    **{(s, _E.ATTEMPT_ENDED): _S.RELEASING for s in _WITH_PROGRAM},
    **{(s, _E.ATTEMPT_RETRIED): _S.PREPARING for s in _WITH_PROGRAM},
    **{(s, _E.ATTEMPT_CONDEMNED): _S.QUEUED for s in _WITH_PROGRAM},
    **{(s, _E.CONDEMNED_STOPPED): s for s in _LIVE},
    **{(s, _E.HELD): _S.HOLDING for s in (_S.PROVISIONING, *_WITH_PROGRAM)},
    (_S.HOLDING, _E.PROGRAM_STOPPED): _S.HOLDING,
    (_S.HOLDING, _E.RESUMED): _S.PREPARING,
    **{(s, _E.SLICE_MISSING): s for s in _LIVE},
    **{(s, _E.SLICE_FOUND): s for s in _LIVE},
    **{(s, _E.RELEASE_STARTED): _S.RELEASING for s in (_S.PROVISIONING, _S.HOLDING)},
    **{(s, _E.DELETE_ASKED): s for s in _LIVE},  # outside of RELEASING: of a condemned slice
    **{(s, _E.SLICE_GONE): s for s in _LIVE},
    (_S.RELEASING, _E.REQUEUED): _S.QUEUED,
    (_S.RELEASING, _E.SUCCEEDED): _S.SUCCEEDED,
    (_S.RELEASING, _E.FAILED): _S.FAILED,
    (_S.RELEASING, _E.CANCELLED): _S.CANCELLED,
    (_S.QUEUED, _E.FAILED): _S.FAILED,
    (_S.QUEUED, _E.CANCELLED): _S.CANCELLED,
    **{(s, _E.CANCEL_REQUESTED): s for s in _LIVE},
    **{(s, _E.RELEASE_REQUESTED): s for s in _LIVE},
    **{(s, _E.RESUME_REQUESTED): s for s in _LIVE},
    (_S.FAILED, _E.RESUME_REQUESTED): _S.QUEUED,
    (_S.CANCELLED, _E.RESUME_REQUESTED): _S.QUEUED,
    **{(s, _E.CLEAN_REQUESTED): s for s in State},
}


class IllegalEvent(Exception):
    """An event that the table does not allow in that state: a mistake in `decide/`, never in the data."""


def next_state(state: State, kind: EventKind) -> State:
    """The state that an event leads to. Raises IllegalEvent."""
    try:
        return TABLE[state, kind]
    except KeyError:
        raise IllegalEvent(f"{kind} cannot happen to a job that is {state}") from None


def event(job: Job, kind: EventKind, at: float, text: str, **data: Any) -> Event:
    """The event `kind` for `job`, with the state that it causes."""
    return Event(kind=kind, at=at, state=next_state(job.state, kind), text=text, data=data)


def apply(job: Job, happened: Event) -> Job:
    """`job` after the event; its version is left alone (the store counts it up)."""
    state = next_state(job.state, happened.kind)
    changed = _FOLD.get(happened.kind, _nothing)(job, happened, happened.data)
    since = happened.at if state is not job.state else job.state_since
    finished = happened.at if state.final and not job.state.final else changed.finished_at
    return replace(
        changed,
        state=state,
        state_since=since,
        finished_at=finished if state.final else None,
        message=happened.text if happened.kind not in _QUIET else changed.message,
    )


#: attempts, counted from the newest, that keep their lines of evidence in the record; the events keep them all
PROVEN = 20

_QUIET = frozenset(
    {
        _E.PROGRESSED,
        _E.CONDEMNED_STOPPED,
        _E.DELETE_ASKED,
        _E.SLICE_GONE,
        _E.CLEAN_REQUESTED,
    }
)


# How each event changes the record -----------------------------------------------------------------------------------

_Data = Mapping[str, Any]


def _nothing(job: Job, happened: Event, data: _Data) -> Job:
    return job


#: requests that came to nothing, counted from the newest, that stay in the record; the events keep them all
REFUSALS = 20


def _slice_requested(job: Job, happened: Event, data: _Data) -> Job:
    asked = Slice(requested_at=happened.at, tpu_slices=job.tpu_slices, **data)
    old = [s.k for s in job.slices if s.refused and s.gone_at is not None][:-REFUSALS]
    kept = tuple(s for s in job.slices if s.k not in old)
    return replace(job, slices=(*kept, asked), then=None)


def _slice_ready(job: Job, happened: Event, data: _Data) -> Job:
    ready = _with_endpoints(job, happened, data)
    spent = {k: v for k, v in ready.spent.items() if k not in ("stockouts", "quota")}
    return _new_attempt(replace(ready, spent=spent), happened)


def _with_endpoints(job: Job, happened: Event, data: _Data) -> Job:
    endpoints = tuple(Endpoint(*e) for e in data["endpoints"])
    return _change_slice(job, endpoints=endpoints, ready_at=happened.at)


def _new_attempt(job: Job, happened: Event) -> Job:
    assert job.slice is not None
    fresh = Attempt(
        number=len(job.attempts) + 1,
        slice=job.slice.name,
        started_at=happened.at,
        resume_before=_resume_before(job),
    )
    older, newer = job.attempts[:-PROVEN], job.attempts[-PROVEN:]
    earlier = (*(replace(a, evidence=()) for a in older), *newer)
    return replace(job, attempts=(*earlier, fresh), hold_until=None)


def _resume_before(job: Job) -> int:
    """What was saved at or after a step that was not finite may hold wrong numbers: later attempts stay before it.
    Once such an attempt has come past that step, its own checkpoints are good again."""
    bound = 0
    for attempt in job.attempts:
        bound = attempt.resume_before
        if bound and (attempt.progress.checkpoint or 0) >= bound:
            bound = 0
        if attempt.verdict and attempt.verdict.step is not None and attempt.cause in _SUSPECT:
            bound = min(bound or attempt.verdict.step, attempt.verdict.step)
    return max(0, bound)


_SUSPECT = (Cause.BAD_HOST, Cause.NONFINITE)


def _attempt_running(job: Job, happened: Event, data: _Data) -> Job:
    return _change_attempt(job, running_at=happened.at, versions=dict(data.get("versions") or {}))


def _progressed(job: Job, happened: Event, data: _Data) -> Job:
    return _change_attempt(job, progress=Progress(**data["progress"]), progress_at=happened.at)


def _attempt_ended(job: Job, happened: Event, data: _Data) -> Job:
    ended = _end_attempt(job, happened, data)
    return _leaving(ended, data, reason=happened.text)


def _attempt_retried(job: Job, happened: Event, data: _Data) -> Job:
    ended = _spend(_end_attempt(job, happened, data), data)
    return _new_attempt(replace(ended, wake=happened.at + data["delay"]), happened)


def _attempt_condemned(job: Job, happened: Event, data: _Data) -> Job:
    ended = _spend(_end_attempt(job, happened, data), data)
    kept = _change_slice(
        ended, role=Role.CONDEMNED, condemned_at=happened.at, delete_reason=happened.text
    )
    return replace(kept, wake=happened.at + data["delay"], cause=None)


def _condemned_stopped(job: Job, happened: Event, data: _Data) -> Job:
    return _change_slice(job, data["slice"], stopped=True)


def _held(job: Job, happened: Event, data: _Data) -> Job:
    held = (
        _with_endpoints(job, happened, data)
        if "endpoints" in data
        else _end_attempt(job, happened, data)
    )
    return replace(held, hold_until=data["hold_until"], stopped="endpoints" in data)


def _program_stopped(job: Job, happened: Event, data: _Data) -> Job:
    return replace(job, stopped=True)


def _resumed(job: Job, happened: Event, data: _Data) -> Job:
    return _new_attempt(replace(job, stopped=True), happened)


def _slice_missing(job: Job, happened: Event, data: _Data) -> Job:
    return _change_slice(job, data.get("slice", ""), missing_since=happened.at)


def _slice_found(job: Job, happened: Event, data: _Data) -> Job:
    return _change_slice(job, data.get("slice", ""), missing_since=None)


def _release_started(job: Job, happened: Event, data: _Data) -> Job:
    if data.get("refused"):
        job = _change_slice(job, refused=Cause(data["refused"]))
    return _leaving(job, data, reason=happened.text)


def _delete_asked(job: Job, happened: Event, data: _Data) -> Job:
    return _change_slice(job, data["slice"], delete_asked_at=happened.at)


def _slice_gone(job: Job, happened: Event, data: _Data) -> Job:
    return _change_slice(job, data["slice"], gone_at=happened.at)


def _requeued(job: Job, happened: Event, data: _Data) -> Job:
    return replace(job, wake=happened.at + data["delay"], then=None, cause=None, hold_until=None)


def _finished(job: Job, happened: Event, data: _Data) -> Job:
    outcome = {_E.SUCCEEDED: Outcome.SUCCEEDED, _E.FAILED: Outcome.FAILED}.get(
        happened.kind, Outcome.INTERRUPTED
    )
    cause = Cause(data["cause"]) if data.get("cause") else None
    return replace(job, outcome=outcome, cause=cause, then=None, hold_until=None)


def _wish(wish: Wish) -> Callable[[Job, Event, _Data], Job]:
    def fold(job: Job, happened: Event, data: _Data) -> Job:
        changed = replace(job, wish=wish, wipe_checkpoints=bool(data.get("checkpoints", False)))
        if (
            wish is Wish.RUN and job.state.final
        ):  # a fresh start: old budgets and the old verdict are history
            at = happened.at
            return replace(changed, spent={}, outcome=None, cause=None, wake=at, fresh_at=at)
        return changed

    return fold


_FOLD: Mapping[EventKind, Callable[[Job, Event, _Data], Job]] = {
    _E.SLICE_REQUESTED: _slice_requested,
    _E.SLICE_READY: _slice_ready,
    _E.ATTEMPT_RUNNING: _attempt_running,
    _E.PROGRESSED: _progressed,
    _E.ATTEMPT_ENDED: _attempt_ended,
    _E.ATTEMPT_RETRIED: _attempt_retried,
    _E.ATTEMPT_CONDEMNED: _attempt_condemned,
    _E.CONDEMNED_STOPPED: _condemned_stopped,
    _E.HELD: _held,
    _E.PROGRAM_STOPPED: _program_stopped,
    _E.RESUMED: _resumed,
    _E.SLICE_MISSING: _slice_missing,
    _E.SLICE_FOUND: _slice_found,
    _E.RELEASE_STARTED: _release_started,
    _E.DELETE_ASKED: _delete_asked,
    _E.SLICE_GONE: _slice_gone,
    _E.REQUEUED: _requeued,
    _E.SUCCEEDED: _finished,
    _E.FAILED: _finished,
    _E.CANCELLED: _finished,
    _E.CANCEL_REQUESTED: _wish(Wish.CANCEL),
    _E.RELEASE_REQUESTED: _wish(Wish.RELEASE),
    _E.CLEAN_REQUESTED: _wish(Wish.CLEAN),
    _E.RESUME_REQUESTED: _wish(Wish.RUN),
}


def _change_slice(job: Job, name: str = "", **changes: Any) -> Job:
    name = name or (job.slice.name if job.slice else "")
    changed = tuple(replace(s, **changes) if s.name == name else s for s in job.slices)
    return replace(job, slices=changed)


def _change_attempt(job: Job, **changes: Any) -> Job:
    *earlier, last = job.attempts
    return replace(job, attempts=(*earlier, replace(last, **changes)))


def _end_attempt(job: Job, happened: Event, data: _Data) -> Job:
    if job.attempt is None or job.attempt.outcome is not None:  # an outcome, once set, stays
        return job
    return _change_attempt(
        job,
        ended_at=happened.at,
        outcome=Outcome(data["outcome"]),
        cause=Cause(data["cause"]) if data.get("cause") else None,
        host=data.get("host"),
        message=happened.text,
        evidence=tuple(data.get("evidence") or ()),
        progress=Progress(**data["progress"]) if data.get("progress") else job.attempt.progress,
        physical=tuple(data.get("physical") or ()),
        verdict=Verdict(**data["verdict"]) if data.get("verdict") else None,
    )


def _leaving(job: Job, data: _Data, *, reason: str) -> Job:
    """The job as it enters RELEASING: where that leads, and the named reason that any delete needs."""
    reasoned = _change_slice(job, delete_reason=reason)
    cause = Cause(data["cause"]) if data.get("cause") else None
    return replace(_spend(reasoned, data), then=State(data["then"]), cause=cause, hold_until=None)


def _spend(job: Job, data: _Data) -> Job:
    budget = data.get("budget")
    if not budget:
        return job
    return replace(job, spent={**job.spent, budget: job.spent.get(budget, 0) + 1})
