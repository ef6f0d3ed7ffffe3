"""A race: slices are requested in several places at once, and the first that is ready serves. Pure.

Candidates are requested while the job is in PROVISIONING, beside the serving request. One commit changes the roles. Of
the others, those that still wait in the cloud's queue cost nothing: they stay until the program runs, in case the
pre-flight fails. All else is handed on, or deleted before the program is started. What lost is never created again.
"""

from collections.abc import Sequence
from dataclasses import asdict

from tpujob.domain.actions import CreateSlice, Decision, HandOn
from tpujob.domain.capacity import circuits, datasets, race
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.decide import limits, planned_end, releasing
from tpujob.domain.events import CandidateLost, CandidatePromoted, Event, EventKind, SliceRequested
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, Job, Slice, State
from tpujob.domain.observations import Absent, Observation, Present, SliceState, Unknown
from tpujob.domain.text import duration
from tpujob.errors import Scope

#: seconds until the next poll while candidates wait: one that is ready is billed
LOOK = 5.0
#: seconds for which candidates that wait in the cloud's queue are kept while the chosen slice is being prepared
RUNNER_UP_KEPT = 15 * 60.0
#: seconds after which a request is given up that the cloud has begun to create
CREATE_DEADLINE = 60 * 60.0
#: refusals for good of one type in one zone; another offer may be requested
FOR_GOOD = frozenset({Cause.PERMISSION, Cause.BAD_SPEC})
#: states in which the job may hand on a slice that lost
_HANDS_ON = (State.PREPARING, State.RUNNING)

_E = EventKind


def decide(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return the next step for the slices of the race; None: there is none now."""
    if lost := _lose_next(job, seen, now):
        return Decision(lost, wake_in=0)
    releases = [_release(job, slice, seen, now) for slice in _in_turn(job.losers, now)]
    releases.sort(key=lambda step: (not step.event, not step.action))
    if releases and (releases[0].event or releases[0].action):
        return releases[0]
    if job.state is not State.PROVISIONING:
        return None
    absent = (slice for slice in job.candidates if isinstance(seen.of(slice), Absent))
    if slice := next(absent, None):
        return Decision(action=CreateSlice(slice.name), wake_in=1)
    return _request(job, seen, now)


def release_first(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return the release of a slice that lost and whose deletion was not requested yet. It comes before the start of
    the program, which may take longer."""
    fresh = [slice for slice in job.losers if slice.delete_asked_at is None]
    releases = (_release(job, slice, seen, now) for slice in _in_turn(fresh, now))
    return next((step for step in releases if step.event or step.action), None)


def _in_turn(slices: Sequence[Slice], now: float) -> list[Slice]:
    """Return the slices in an order that changes each second, as the deletion of one may fail again and again."""
    first = int(now) % len(slices) if slices else 0
    return [*slices[first:], *slices[:first]]


def first_ready(job: Job, seen: Observation) -> tuple[Slice, Present] | None:
    """Return the slice that may serve, with its state: the serving one if it is ready, else the preferred candidate
    that is; None: none is ready."""
    for slice in _requests(job):
        match seen.of(slice):
            case Present(SliceState.READY) as look if slice is job.slice or not look.suspending:
                return slice, look
            case _:
                pass
    return None


def runners_up(job: Job, seen: Observation) -> tuple[str, ...]:
    """Return the names of the requests that stay as candidates while the chosen slice is prepared."""
    return tuple(slice.name for slice in _requests(job) if _waits(seen, slice))


def promote(job: Job, failed: CandidateLost, text: str, now: float) -> Event:
    """Return the event by which a candidate serves in place of the request that failed."""
    slice = job.candidates[0]
    text = f"{text}; the request in {slice.zone} goes on"
    return event(job, _E.CANDIDATE_PROMOTED, now, text, CandidatePromoted(slice.name, failed))


def refuse(
    job: Job, slice: Slice, cause: Cause, error: str, now: float, *, scope: Scope, limit: int | None
) -> Event:
    """Return the event of a candidate whose request the cloud has refused."""
    counts = cause in circuits.FOR_NOW or cause in FOR_GOOD
    refused = (
        CandidateLost(slice.name, cause, scope, limit) if counts else CandidateLost(slice.name)
    )
    return _lose(job, f"no slice in {slice.zone}, {cause}: {error}", refused, now)


def _lose(job: Job, text: str, lost: CandidateLost, now: float) -> Event:
    return event(job, _E.CANDIDATE_LOST, now, text, lost)


def _lose_next(job: Job, seen: Observation, now: float) -> Event | None:
    """Return the loss of a candidate that is refused, lost or needed no longer; None: all stay."""
    chosen = first_ready(job, seen)
    for slice in job.candidates:
        look = seen.of(slice)
        if isinstance(look, Present) and (failed := _failed(job, slice, look, now)):
            return failed
        if job.state is State.PREPARING:
            late = now - job.state_since > RUNNER_UP_KEPT
            if late or not (_waits(seen, slice) or isinstance(look, Unknown)):
                text = f"{slice.name} is not needed: another slice was ready first"
                return _lose(job, text, CandidateLost(slice.name), now)
        elif chosen and chosen[0] is not slice and _is_ready(seen, slice):
            text = f"{slice.name} is not needed: {chosen[0].name} was ready first"
            return _lose(job, text, CandidateLost(slice.name), now)
    return None


def _failed(job: Job, slice: Slice, look: Present, now: float) -> Event | None:
    """Return the loss of a candidate whose request has failed; None: it has not."""
    match look.state:
        case SliceState.FAILED:
            cause = look.cause or Cause.STOCKOUT
            return refuse(job, slice, cause, look.detail, now, scope=look.scope, limit=look.limit)
        case SliceState.PREEMPTED | SliceState.STOPPED | SliceState.DELETING:
            text = f"{slice.name} is {look.state} before its program was started"
            return _lose(job, text, CandidateLost(slice.name), now)
        case SliceState.CREATING if now - slice.requested_at > CREATE_DEADLINE:
            text = f"the cloud has been creating it for {duration(CREATE_DEADLINE)}"
            return refuse(job, slice, Cause.STOCKOUT, text, now, scope="", limit=None)
        case _:
            return None


def _requests(job: Job) -> list[Slice]:
    """Return the serving slice and the candidates."""
    return [slice for slice in (job.slice, *job.candidates) if slice]


def _waits(seen: Observation, slice: Slice) -> bool:
    look = seen.of(slice)
    return isinstance(look, Present) and look.state is SliceState.WAITING


def _is_ready(seen: Observation, slice: Slice) -> bool:
    look = seen.of(slice)
    return isinstance(look, Present) and look.state is SliceState.READY and not look.suspending


def _release(job: Job, slice: Slice, seen: Observation, now: float) -> Decision:
    heir = seen.hand_over.losers.get(slice.name)
    offered = slice.ready_at is not None and slice.delete_asked_at is None
    if heir and offered and job.state in _HANDS_ON and _is_ready(seen, slice):
        return Decision(action=HandOn(slice.name, heir), wake_in=2)
    return releasing.leaving(job, slice, seen, now)


def _request(job: Job, seen: Observation, now: float) -> Decision | None:
    """Request one more candidate; None: there are enough, or no other place may be asked."""
    if len(job.candidates) + 1 >= race.size(job) or job.condemned:
        return None
    places = race.places(job, now, seen.prices)
    possible = [offer for offer in places if _stockout(offer) in seen.race]
    affordable, _ = limits.paid_for(job, seen, possible, now)
    offer = circuits.pick(affordable, seen.circuits, now)
    if offer is None:
        return None
    k = job.slices[-1].k + 1
    request = SliceRequested(
        name=race.slice_name(job, k),
        k=k,
        bucket=datasets.bucket_for(job, offer.zone),
        run_for=planned_end.requested_for(job, offer.pricing),
        reservation=job.spec.tpu.reservation,
        race=race.size(job),
        **asdict(offer),
    )
    text = f"also requested {offer.pricing} {offer.type} in {offer.zone}: the first that is ready serves"
    happened = event(job, _E.CANDIDATE_REQUESTED, now, text, request)
    return Decision(happened, CreateSlice(request.name), wake_in=1)


def _stockout(offer: Offer) -> str:
    return circuits.names(offer)[0]
