"""Dispatch of decisions: `decide` selects the module of the job's state, `follow_up` handles the result of an action.
Pure.

Unknown parts of an observation decide nothing. No end, deletion or request follows from a list alone; no attempt ends
before the evidence of its hosts was read, as far as it can be. The decision then asks for that observation first.
"""

from dataclasses import replace

from tpujob.domain.actions import (
    Action,
    CleanJob,
    CreateSlice,
    Decision,
    DeleteSlice,
    Denied,
    Done,
    Made,
    MakeCopy,
    MakeElements,
    Needs,
    Result,
    StartProgram,
    StopProgram,
    soon,
)
from tpujob.domain.capacity import deadline
from tpujob.domain.decide import (
    active,
    billing,
    candidates,
    condemned,
    copying,
    deadlines,
    group,
    holding,
    limits,
    planned_end,
    provisioning,
    queued,
    releasing,
)
from tpujob.domain.decide.attempt_end import end_attempt
from tpujob.domain.events import OBSERVED, AboutSlice, Event, EventKind
from tpujob.domain.lifecycle import event, with_billed
from tpujob.domain.model import DesiredState, End, Job, Outcome, State
from tpujob.domain.observations import Observation, Unknown

_E = EventKind

#: the events that give an attempt its cause, for which evidence may name a better one
_ENDS = frozenset({_E.ATTEMPT_ENDED, _E.ATTEMPT_RETRIED, _E.ATTEMPT_CONDEMNED, _E.ATTEMPT_SWAPPED})
#: frequent events that end, delete and request nothing
_OFTEN = OBSERVED | {_E.COPY_ADVANCED}


def decide(job: Job, seen: Observation, now: float) -> Decision:
    """Return at most one event and one action for `job` at `now`, or the observation that the decision needs first."""
    if job.spec.is_group:
        return group.decide(job, seen, now)
    if passed_on := group.pass_on(job, seen, now):
        return passed_on
    billed = billing.note(job, seen, now)
    job = with_billed(job, billed) if billed else job
    noted = limits.warn(job, seen, now) or deadlines.note_missed(job, now)
    decision = noted or _by_state(job, seen, now)
    if decision.event is None and (released := _release_first(job, seen, now)):
        decision = released
    if decision.event is None and decision.action is None:
        # the next request may be hours away, and slices beside are billed
        wait = soon(job, now) if job.beside else decision.wake_in
        decision = _beside(job, seen, now) or _within(decision, wait)
    if job.candidates:
        decision = _within(decision, candidates.LOOK)
    if billed:
        decision = billing.with_note(job, decision, billed, now)
    dues = (
        limits.due_in(job, seen, now),
        planned_end.due_in(job, now),
        deadline.changes_in(job, now),
    )
    for due in dues:
        decision = decision if due is None else _within(decision, due)
    return _with_needs(decision, seen)


def decide_beside(job: Job, seen: Observation, now: float) -> Decision:
    """Decide about slices beside the serving one while the job's own next step is a repeated action, such as a start
    without an answer or a long copy; about that step, while the release of a slice that lost a race is repeated."""
    if _release_first(job, seen, now):
        return _with_needs(_by_state(job, seen, now), seen)
    return _with_needs(_beside(job, seen, now) or Decision(), seen)


def _release_first(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return the release that comes before the job's own next action; None: there is none."""
    own = job.state not in (State.RELEASING, State.QUEUED)
    return candidates.release_first(job, seen, now) if own else None


def _beside(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return the next step for slices beside the serving one: a fact first. Else condemned slices and candidates take
    turns, as an action may fail again and again."""
    steps = [condemned.give_back(job, seen, now), candidates.decide(job, seen, now)]
    due = [step for step in steps[:: 1 if int(now) % 2 else -1] if step]
    return min(due, key=lambda step: step.event is None, default=None)


def _with_needs(decision: Decision, seen: Observation) -> Decision:
    """Return the decision if the observation suffices for it, else one that names the observation it needs."""
    event, action = decision.event, decision.action
    ends = event is not None and event.kind in _ENDS
    often = event is None or event.kind in _OFTEN
    if seen.listed and not (often and isinstance(action, None | StartProgram | MakeCopy)):
        return Decision(needs=Needs.FRESH)
    if ends and not seen.evidence:
        return Decision(needs=Needs.EVIDENCE)
    return decision


def _within(decision: Decision, seconds: float) -> Decision:
    """Return the same decision, with the next tick after so many seconds at the latest."""
    return replace(decision, wake_in=min(decision.wake_in, seconds))


def _by_state(job: Job, seen: Observation, now: float) -> Decision:
    match job.state:
        case State.QUEUED:
            return queued.decide(job, seen, now)
        case State.PROVISIONING:
            return provisioning.decide(job, seen, now)
        case State.PREPARING:
            return active.preparing(job, seen, now)
        case State.RUNNING:
            return active.running(job, seen, now)
        case State.HOLDING:
            return holding.decide(job, seen, now)
        case State.RELEASING:
            return releasing.decide(job, seen, now)
        case State.SUCCEEDED | State.FAILED | State.CANCELLED:
            wiped = job.desired is DesiredState.CLEAN
            return Decision(action=CleanJob()) if wiped else Decision(wake_in=3600)


def follow_up(job: Job, action: Action, result: Result, now: float) -> Event | None:
    """Return the event that the result of an action causes; None: there is nothing to store."""
    match action, result:
        case MakeCopy(id), _:
            return copying.follow_up(job, id, result, now)
        case MakeElements(), Made(count):
            return group.note_made(job, count, now)
        case CreateSlice(name), Denied(cause, error, scope, limit) if name:
            slice = next((s for s in job.candidates if s.name == name), None)
            return slice and candidates.refuse(
                job, slice, cause, error, now, scope=scope, limit=limit
            )
        case CreateSlice(), Denied(cause, error, scope, limit):
            return provisioning.refuse(job, cause, error, scope, now, limit)
        case StartProgram(), Denied(cause, error):
            return end_attempt(job, End(Outcome.FAILED, cause, None, error), Unknown(error), now)
        case StartProgram(), Done():
            return active.note_launched(job, now)
        case StopProgram(name), Done() if any(s.name == name for s in job.condemned):
            text = f"the program on {name} is stopped"
            return event(job, _E.CONDEMNED_STOPPED, now, text, AboutSlice(name))
        case StopProgram(""), Done() if job.state is State.HOLDING and not job.stopped:
            return event(job, _E.PROGRAM_STOPPED, now, holding.held_text(job))
        case DeleteSlice(name, _), Done() if not _delete_asked(job, name):
            text = f"{name} is being deleted"
            return event(job, _E.DELETE_ASKED, now, text, AboutSlice(name))
        case _:
            return None


def _delete_asked(job: Job, name: str) -> bool:
    return any(s.name == name and s.delete_asked_at is not None for s in job.slices)
