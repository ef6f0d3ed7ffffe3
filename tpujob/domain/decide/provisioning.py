"""PROVISIONING: a slice was requested; it becomes ready, is refused, or is given up for another offer. Pure."""

from tpujob.domain.actions import CreateSlice, Decision, StartProgram, soon
from tpujob.domain.capacity import circuits, deadline
from tpujob.domain.capacity.deadline import Terms
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.decide import billing, condemned, holding, limits, releasing
from tpujob.domain.decide.attempt_end import slice_name
from tpujob.domain.decide.queued import waited_out, waited_out_text
from tpujob.domain.events import Event, EventKind, ReleaseStarted, SliceReady
from tpujob.domain.failures import retry
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.domain.observations import Absent, Observation, Present, SliceState
from tpujob.domain.text import duration, many
from tpujob.errors import Scope

#: seconds after which a request is given up that the cloud has begun to create
CREATE_DEADLINE = 60 * 60.0
#: seconds after which a request in the cloud's queue is given up, if another offer may be requested
QUEUE_PATIENCE = 30 * 60.0
#: the same of a preemptible slice, if the job's deadline lets it request a safe one
SPOT_PATIENCE = 2 * 60.0
#: seconds after which a request in the cloud's queue is stored as waiting
QUEUED_LONG = 10.0

#: refusals for good of one type in one zone; another offer may be requested
_FOR_GOOD = frozenset({Cause.PERMISSION, Cause.BAD_SPEC})

_E = EventKind


def decide(job: Job, seen: Observation, now: float) -> Decision:
    look = seen.serving(job)
    ready = look if isinstance(look, Present) and look.state is SliceState.READY else None
    if job.desired is DesiredState.CANCEL and ready:
        return Decision(holding.unused(job, ready, seen, now), wake_in=1)
    if job.desired is not DesiredState.RUN:
        return releasing.cancel(job, now, "cancelled before the slice was ready")
    limit = limits.used_up(job, seen, now)
    if limit:
        then = State.FAILED if limit.own else State.QUEUED
        return releasing.start(job, now, limit.text, ReleaseStarted(then, limit.cause))
    if waited_out(job, now) and not ready:
        given_up = ReleaseStarted(State.FAILED, Cause.STOCKOUT)
        return releasing.start(job, now, waited_out_text(job), given_up)
    if isinstance(look, Present):
        return _present(job, look, seen, now)
    if isinstance(look, Absent):
        return Decision(action=CreateSlice(), wake_in=soon(job, now))
    return Decision(wake_in=soon(job, now))


def _present(job: Job, look: Present, seen: Observation, now: float) -> Decision:
    waited = now - job.state_since
    match look.state:
        case SliceState.READY:
            return _ready(job, look, seen, now)
        case SliceState.FAILED:
            refused = refuse(
                job, look.cause or Cause.STOCKOUT, look.detail, look.scope, now, look.limit
            )
            return Decision(refused, wake_in=0)
        case SliceState.PREEMPTED:
            ready = job.slice and job.slice.ready_at is not None
            when = "before its program was started" if ready else billing.NEVER_BILLED
            return _give_up(job, Cause.PREEMPTED, f"preempted {when}", now)
        case SliceState.STOPPED:
            return releasing.cancel(job, now, f"{slice_name(job)} was stopped outside tpujob")
        case SliceState.WAITING if waited >= QUEUE_PATIENCE and _free(job, seen, now):
            reason = f"the request has waited {duration(QUEUE_PATIENCE)} in the cloud's queue"
            return _give_up(job, Cause.STOCKOUT, reason, now)
        case SliceState.WAITING | SliceState.CREATING if _is_pressed(job, look, seen, now):
            reason = f"its deadline does not let it wait for {job.slice.pricing if job.slice else 'it'} any longer"
            return _give_up(job, Cause.STOCKOUT, reason, now)
        case SliceState.CREATING if waited > CREATE_DEADLINE:
            reason = f"the cloud has been creating it for {duration(CREATE_DEADLINE)}"
            return _give_up(job, Cause.STOCKOUT, reason, now)
        case SliceState.WAITING if waited >= QUEUED_LONG and job.slice and not job.slice.in_queue:
            text = f"waiting for capacity in {job.slice.zone}: the cloud keeps the request in its queue"
            return Decision(event(job, _E.SLICE_WAITING, now, text), wake_in=soon(job, now))
        case SliceState.CREATING if job.slice and job.slice.in_queue:
            text = f"the cloud is creating {job.slice.name}"
            return Decision(event(job, _E.SLICE_CREATING, now, text), wake_in=soon(job, now))
        case _:
            return Decision(wake_in=soon(job, now))


def _ready(job: Job, look: Present, seen: Observation, now: float) -> Decision:
    if condemned.still_running(job):
        return Decision(wake_in=2)
    ready = f"{slice_name(job)} is ready with {many(len(look.endpoints), 'host')}"
    text = f"{ready}; attempt {len(job.attempts) + 1} is being started"
    ready_at = billing.ready_since(job.slice, look, seen, now) if job.slice else now
    happened = event(job, _E.SLICE_READY, now, text, SliceReady(look.endpoints, ready_at))
    return Decision(happened, StartProgram(), wake_in=1)


def refuse(
    job: Job, cause: Cause, error: str, scope: Scope, now: float, limit: int | None = None
) -> Event:
    """Return the event of a refused request: the slice is released; then the job requests another one, or fails."""
    next_try = retry.after(job, cause)
    budget = next_try.budget if isinstance(next_try, retry.Again) else ""
    elsewhere = cause in _FOR_GOOD and _others(job, now)
    refused = cause if cause in circuits.FOR_NOW or cause in _FOR_GOOD else None
    started = ReleaseStarted(
        next_state=State.QUEUED if budget or elsewhere else State.FAILED,
        cause=cause,
        budget=budget,
        refused=refused,
        scope=scope if refused else "",
        limit=limit if refused else None,
    )
    zone = job.slice.zone if job.slice else "any zone"
    return event(job, _E.RELEASE_STARTED, now, f"no slice in {zone}, {cause}: {error}", started)


def _give_up(job: Job, cause: Cause, error: str, now: float) -> Decision:
    return Decision(refuse(job, cause, error, "", now), wake_in=0)


def _others(job: Job, now: float) -> list[Offer]:
    """Return the offers that the job may request now, of another place than the present one."""
    tried = job.slice.place if job.slice else None
    return [o for o in circuits.requestable(job, now) if o.place != tried]


def _free(job: Job, seen: Observation, now: float) -> bool:
    """Return whether an offer of another place may be requested now."""
    return circuits.pick(_others(job, now), seen.circuits, now) is not None


def _is_pressed(job: Job, look: Present, seen: Observation, now: float) -> bool:
    """Return whether its deadline requires a safe slice in place of the preemptible one that was requested, and one may
    be requested now: when it is behind the line and the request waits; when no start may be lost any more, also while
    the cloud creates the slice."""
    facts = deadline.deadline_of(job)
    if facts is None or job.slice is None or not deadline.preemptible(job.slice):
        return False
    waited = now - job.state_since
    patience = 0.0 if facts.terms(now) is Terms.SAFE else SPOT_PATIENCE
    waits = look.state is SliceState.WAITING and waited >= patience
    if not waits and now < facts.last_start:
        return False
    safe = [o for o in _others(job, now) if not deadline.preemptible(o)]
    return circuits.pick(safe, seen.circuits, now) is not None
