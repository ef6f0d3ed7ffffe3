"""QUEUED: the job has no serving slice and requests one as soon as it may request an offer. Pure."""

from dataclasses import asdict

from tpujob.domain.actions import CreateSlice, Decision
from tpujob.domain.capacity import circuits, datasets, race
from tpujob.domain.capacity.entries import entry, wanted
from tpujob.domain.decide import condemned, copying, limits, planned_end
from tpujob.domain.events import Event, EventKind, Finished, SliceReceived, SliceRequested
from tpujob.domain.failures.retry import due_at
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, Job, Slice, State
from tpujob.domain.money.budget import Shortage
from tpujob.domain.observations import OWN, Observation, Place, Reason
from tpujob.domain.text import duration, with_article

#: seconds until the next check whether a shared budget pays for a slice
PENNILESS = 60.0

#: seconds until the next tick of a job that its place in the queue lets request nothing
PLACELESS = 300.0

_E = EventKind


def decide(job: Job, seen: Observation, now: float) -> Decision:
    if job.desired is not DesiredState.RUN:
        cancelled = Finished(Cause.CANCELLED)
        return _end(
            job, event(job, _E.CANCELLED, now, "cancelled before it had a slice", cancelled)
        )
    place = seen.place
    if place and place.broken:
        return _end(job, _never(job, place.broken, now))
    if _lacks_capacity(job, place) and waited_out(job, now, place):
        refusals = circuits.refusals(job)
        failed = Finished(refusals[-1].refused if refusals else Cause.STOCKOUT)
        return _end(job, event(job, _E.FAILED, now, waited_out_text(job), failed))
    possible = circuits.requestable(job, now, seen.prices)
    if not possible:
        return _end(job, _nowhere(job, now))
    offers, unpaid = limits.paid_for(job, seen, possible, now)
    if unpaid:
        return _unpaid(job, unpaid, now)
    wake = due_at(job.wake, now)
    if now < wake:
        return Decision(wake_in=wake - now)
    if place is not None:
        offers = [o for o in offers if circuits.names(o)[0] in place.ask]
    if not offers:
        return Decision(wake_in=PLACELESS)
    refused = seen.circuits if place is None else circuits.below_limits(seen.circuits)
    chosen = circuits.pick(offers, refused, now)
    if chosen is None:
        return Decision(wake_in=circuits.first_available(offers, refused)[1] - now)
    if condemned.too_many(job, seen):
        return Decision(wake_in=2)
    if missing := copying.decide(job, chosen, seen.prices, now):
        return missing
    k = job.slices[-1].k + 1 if job.slices else 1
    request = SliceRequested(
        name=race.slice_name(job, k),
        k=k,
        bucket=datasets.bucket_for(job, chosen.zone),
        run_for=planned_end.requested_for(job, chosen.pricing),
        reservation=job.spec.tpu.reservation,
        race=race.size_of_request(job, chosen, seen.waits),
        **asdict(chosen),
    )
    kind = f"{chosen.pricing} {chosen.type}"
    slices = with_article(kind) if job.tpu_slices == 1 else f"{job.tpu_slices} {kind}"
    text = f"requested {slices} in {chosen.zone}"
    return Decision(event(job, _E.SLICE_REQUESTED, now, text, request), CreateSlice(), wake_in=1)


def can_request(job: Job, shape: str, seen: Observation, now: float) -> bool:
    """Return whether the job, which waits for chips, requests a slice of that shape as soon as they are free: nobody
    has cancelled it, it has not waited too long, and its budgets pay for the slice."""
    offers = [o for o in circuits.allowed(job, seen.prices) if circuits.names(o)[0] == shape]
    waits = job.state is State.QUEUED and job.desired is DesiredState.RUN and not job.held_by
    if not waits or not offers or waited_out(job, now, seen.place):
        return False
    return limits.paid_for(job, seen, offers, now)[1] is None


def receive(job: Job, giver: Job, name: str, seen: Observation, now: float) -> Event | None:
    """Return the event by which the job gets a ready slice of another job; None: it cannot use it now."""
    slice_ = next((s for s in giver.slices if s.name == name and s.gone_at is None), None)
    given = entry(giver, seen.prices).giving(name)
    own = entry(job, seen.prices, now=now)
    if not slice_ or not given or job.held_by or not own.fits(given):
        return None
    same = [o for o in circuits.requestable(job, now, seen.prices) if wanted(o) == wanted(slice_)]
    if limits.paid_for(job, seen, same, now)[1]:
        return None
    received = Slice(
        name=slice_.name,
        k=job.slices[-1].k + 1 if job.slices else 1,
        type=slice_.type,
        zone=slice_.zone,
        pricing=slice_.pricing,
        system_image=slice_.system_image,
        usd_per_hour=slice_.usd_per_hour,
        requested_at=now,
        endpoints=slice_.endpoints,
        ready_at=now,
        tpu_slices=slice_.tpu_slices,
        bucket=datasets.bucket_for(job, slice_.zone),
        provider=slice_.provider,
        epoch=slice_.epoch + 1,
        run_for=slice_.run_for,
        reservation=slice_.reservation,
        ends_at=slice_.ends_at,
        received_from=giver.id,
    )
    attempt = len(job.attempts) + 1
    text = f"{slice_.name} comes from job {giver.id}; attempt {attempt} is being started"
    return event(job, _E.SLICE_RECEIVED, now, text, SliceReceived(received, giver.id))


def _never(job: Job, broken: Reason, now: float) -> Event:
    """Return the end of a job whose dependency cannot be met any more."""
    how = broken.how if broken.how in (State.SUCCEEDED, State.FAILED) else f"was {broken.how}"
    text = f"needed the {broken.what} of {broken.jobs[0]}, which {how}"
    return event(job, _E.CANCELLED, now, text, Finished(Cause.DEPENDENCY))


def _unpaid(job: Job, why: Shortage, now: float) -> Decision:
    """End a job whose own budget does not pay for a slice. A shortage of a shared budget makes it wait."""
    if not why.own:
        return Decision(wake_in=PENNILESS)
    return _end(job, event(job, _E.FAILED, now, why.text, Finished(Cause.BUDGET)))


def _nowhere(job: Job, now: float) -> Event:
    """Return the end of a job without an offer: to every region left, a copy of its data was refused."""
    stuck = next(c for c in reversed(job.copies) if c.refused)
    text = f"{stuck.name} cannot be copied to {stuck.region}: {stuck.error}"
    return event(job, _E.FAILED, now, text, Finished(Cause(stuck.refused)))


def _end(job: Job, end: Event) -> Decision:
    """End the job, but not before its slices beside are gone."""
    return Decision(wake_in=2) if job.beside else Decision(end)


def _lacks_capacity(job: Job, place: Place | None) -> bool:
    """Return whether the job waits for capacity, and not for its owner's other jobs or for its first request."""
    if place is None or not place.order:
        return place is None
    if not place.reasons:
        return bool(job.failed_requests)
    return any(reason.kind not in OWN for reason in place.reasons)


def waited_out(job: Job, now: float, place: Place | None = None) -> bool:
    """Return whether the job has waited for a slice longer than its spec allows. The wait begins again after a copy,
    and not before the job may start."""
    wait = job.spec.recovery.wait
    copied = (
        now if datasets.under_way(job) else max((c.done_at or 0.0 for c in job.copies), default=0.0)
    )
    could = place.order.since if place and place.order else 0.0
    return wait is not None and now - max(circuits.waiting_since(job), copied, could) > wait


def waited_out_text(job: Job) -> str:
    return f"no slice in {duration(job.spec.recovery.wait or 0)}, which `recovery.wait` allows"
