"""PROVISIONING: a slice was requested; it becomes ready, is refused, or is given up for another offer. Pure."""

from tpujob.domain.actions import CreateSlice, Decision, StartProgram, soon
from tpujob.domain.capacity import circuits, deadline, elastic, waits
from tpujob.domain.capacity.deadline import Terms
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.decide import (
    billing,
    candidates,
    condemned,
    holding,
    limits,
    planned_end,
    releasing,
)
from tpujob.domain.decide.attempt_end import slice_name
from tpujob.domain.decide.candidates import CREATE_DEADLINE, FOR_GOOD
from tpujob.domain.decide.queued import waited_out, waited_out_text
from tpujob.domain.events import CandidateLost, Event, EventKind, ReleaseStarted, SliceReady
from tpujob.domain.failures import retry
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, Job, Slice, State
from tpujob.domain.observations import Absent, Observation, Present, SliceState
from tpujob.domain.text import duration, many, utc
from tpujob.errors import Scope

#: seconds after which a request in the cloud's queue is given up, if another offer may be requested: at most, also
#: where no wait is known; and at least
QUEUE_PATIENCE, QUEUE_PATIENCE_LEAST = 30 * 60.0, 5 * 60.0
#: the same of a preemptible slice, if the job's deadline lets it request a safe one
SPOT_PATIENCE = 2 * 60.0
#: seconds after which a request in the cloud's queue is stored as waiting
QUEUED_LONG = 10.0

_E = EventKind


def decide(job: Job, seen: Observation, now: float) -> Decision:
    look = seen.serving(job)
    first = candidates.first_ready(job, seen)
    if job.desired is DesiredState.CANCEL and first and first[0] is job.slice:
        return Decision(holding.unused(job, first[1], seen, now), wake_in=1)
    if job.desired is not DesiredState.RUN:
        return releasing.cancel(job, now, "cancelled before the slice was ready")
    limit = limits.used_up(job, seen, now)
    if limit:
        then = State.FAILED if limit.own else State.QUEUED
        return releasing.start(job, now, limit.text, ReleaseStarted(then, limit.cause))
    if waited_out(job, now) and not first:
        given_up = ReleaseStarted(State.FAILED, Cause.STOCKOUT)
        return releasing.start(job, now, waited_out_text(job), given_up)
    if first:
        return _ready(job, *first, seen, now)
    pending = isinstance(look, Present) and look.state in (SliceState.WAITING, SliceState.CREATING)
    if seen.gives_way_to and pending:
        why = f"gives way to job {seen.gives_way_to} before it has a slice"
        given_up = ReleaseStarted(State.QUEUED, None, gives_way_to=seen.gives_way_to)
        return releasing.start(job, now, why, given_up)
    if isinstance(look, Present):
        return _present(job, look, seen, now)
    if isinstance(look, Absent):
        return Decision(action=CreateSlice(), wake_in=soon(job, now))
    return Decision(wake_in=soon(job, now))


def _present(job: Job, look: Present, seen: Observation, now: float) -> Decision:
    waited = now - (job.slice.requested_at if job.slice else job.state_since)
    match look.state:
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
        case SliceState.WAITING if waited >= patience(job, seen, now) and _free(job, seen, now):
            reason = (
                f"the request has waited {duration(patience(job, seen, now))} in the cloud's queue"
            )
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


def patience(job: Job, seen: Observation, now: float) -> float:
    """Return the seconds for which a request may wait in the cloud's queue while another offer may be requested: of an
    elastic job, as long as the larger size is worth it; else as long as nine in ten of the lab's requests have waited
    there."""
    smaller = (elastic.patience(job.spec, offer.type) for offer in _others(job, now))
    if worth := min(filter(None, smaller), default=0.0):
        return worth
    usual = seen.waits.get(waits.place_of(job.slice)) if job.slice else None
    if usual is None:
        return QUEUE_PATIENCE
    return min(QUEUE_PATIENCE, max(QUEUE_PATIENCE_LEAST, usual.ninetieth))


def _ready(job: Job, slice: Slice, look: Present, seen: Observation, now: float) -> Decision:
    """Let the slice serve that is ready. What loses a race by that is released before the program is started."""
    if condemned.still_running(job):
        return Decision(wake_in=2)
    ready_at = billing.ready_since(slice, look, seen, now)
    ends_at = planned_end.end_of(slice, look, ready_at)
    ready = f"{slice.name} is ready with {many(len(look.endpoints), 'host')}"
    until = "" if ends_at is None else f", until {utc(ends_at)}"
    text = f"{ready}{until}; attempt {len(job.attempts) + 1} is being started"
    payload = SliceReady(
        look.endpoints,
        ready_at,
        ends_at,
        slice="" if slice is job.slice else slice.name,
        runners_up=candidates.runners_up(job, seen),
    )
    happened = event(job, _E.SLICE_READY, now, text, payload)
    return Decision(happened, None if job.candidates else StartProgram(), wake_in=1)


def refuse(
    job: Job, cause: Cause, error: str, scope: Scope, now: float, limit: int | None = None
) -> Event:
    """Return the event of a refused request: a candidate serves in its stead; or the slice is released, and then the
    job requests another one, or fails."""
    zone = job.slice.zone if job.slice else "any zone"
    text = f"no slice in {zone}, {cause}: {error}"
    refused = cause if cause in circuits.FOR_NOW or cause in FOR_GOOD else None
    if job.candidates and job.slice:
        lost = CandidateLost(job.slice.name, refused, scope, limit)
        return candidates.promote(job, lost, text, now)
    next_try = retry.after(job, cause)
    budget = next_try.budget if isinstance(next_try, retry.Again) else ""
    elsewhere = cause in FOR_GOOD and _others(job, now)
    started = ReleaseStarted(
        next_state=State.QUEUED if budget or elsewhere else State.FAILED,
        cause=cause,
        budget=budget,
        refused=refused,
        scope=scope if refused else "",
        limit=limit if refused else None,
    )
    return event(job, _E.RELEASE_STARTED, now, text, started)


def _give_up(job: Job, cause: Cause, error: str, now: float) -> Decision:
    return Decision(refuse(job, cause, error, "", now), wake_in=0)


def _others(job: Job, now: float) -> list[Offer]:
    """Return the offers that the job may request now, of another place than the present ones."""
    tried = {s.place for s in (job.slice, *job.candidates) if s}
    return [o for o in circuits.requestable(job, now) if o.place not in tried]


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
