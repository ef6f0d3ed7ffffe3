"""How a job without a slice gets one: which offer it asks for, how long it waits, when it leaves a queue. Pure."""

from __future__ import annotations

from dataclasses import asdict

from tpujob.domain.actions import CreateSlice, Decision, StartProgram
from tpujob.domain.decide import attempt_end
from tpujob.domain.decide.condemned import still_running, too_many
from tpujob.domain.decide.looks import endpoints_of, serving, soon
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, Event, EventKind, Job, State, Wish
from tpujob.domain.observations import Absent, Present, Seen, SliceState
from tpujob.domain.placement import circuits
from tpujob.domain.text import duration, many

#: a request that the cloud has taken up, but not made a slice of, is given up after this many seconds
CREATE_DEADLINE = 60 * 60.0
#: a request that only waits in the cloud's queue makes way for another zone after this many seconds
QUEUE_PATIENCE = 30 * 60.0
#: a request that the cloud keeps in its queue is called waiting after this many seconds
QUEUED_LONG = 10.0

_E = EventKind


def queued(job: Job, seen: Seen, now: float) -> Decision:
    if job.wish is not Wish.RUN:
        text = "cancelled before it had a slice"
        return _end_queued(job, event(job, _E.CANCELLED, now, text, cause=Cause.CANCELLED))
    if _waited_out(job, now):
        cause = job.slices[-1].refused if job.slices else None
        text = f"no slice in {_limit_text(job)}, which `recovery.wait` allows"
        return _end_queued(job, event(job, _E.FAILED, now, text, cause=cause or Cause.STOCKOUT))
    if now < job.wake:
        return Decision(wake_in=job.wake - now)
    offers = circuits.offers(job)
    chosen = circuits.pick(offers, seen.circuits, now)
    if chosen is None:
        return Decision(wake_in=circuits.first_to_open(offers, seen.circuits)[1] - now)
    if too_many(job, seen):
        return Decision(wake_in=2)
    k = job.slices[-1].k + 1 if job.slices else 1
    request = {"name": _slice_name(job, k), "k": k, **asdict(chosen)}
    many = "a" if job.tpu_slices == 1 else job.tpu_slices
    text = f"asked for {many} {chosen.pricing} {chosen.type} in {chosen.zone}"
    return Decision(event(job, _E.SLICE_REQUESTED, now, text, **request), CreateSlice(), wake_in=1)


def _slice_name(job: Job, k: int) -> str:
    """What the slice is called in the cloud. Jobs of two stores have the same ids, so where the bucket has a folder for
    each, the names end with it."""
    folder = job.bucket.removeprefix("gs://").partition("/")[2]
    return f"tj-{job.id}-{k}-{folder}" if folder else f"tj-{job.id}-{k}"


def _end_queued(job: Job, end: Event) -> Decision:
    """A job ends only when it owns nothing any more."""
    return Decision(wake_in=2) if job.condemned else Decision(end)


def provisioning(job: Job, seen: Seen, now: float) -> Decision:
    slice_seen = serving(job, seen)
    ready = isinstance(slice_seen, Present) and slice_seen.state is SliceState.READY
    if job.wish is Wish.CANCEL and ready:
        held = attempt_end.hold(job, now, (), endpoints=endpoints_of(slice_seen))
        return Decision(held, wake_in=1)
    if job.wish is not Wish.RUN:
        return attempt_end.release(
            job,
            now,
            "cancelled before the slice was there",
            then=State.CANCELLED,
            cause=Cause.CANCELLED,
        )
    if _waited_out(job, now) and not ready:
        text = f"no slice in {_limit_text(job)}, which `recovery.wait` allows"
        return attempt_end.release(job, now, text, then=State.FAILED, cause=Cause.STOCKOUT)
    match slice_seen:
        case Present(SliceState.READY) if still_running(job):
            return Decision(wake_in=2)
        case Present(SliceState.READY, endpoints):
            number = len(job.attempts) + 1
            there = f"{attempt_end.slice_name(job)} is ready with {many(len(endpoints), 'host')}"
            text = f"{there}; attempt {number} is being started"
            happened = event(job, _E.SLICE_READY, now, text, endpoints=endpoints_of(slice_seen))
            return Decision(happened, StartProgram(), wake_in=1)
        case Present(SliceState.FAILED, _, detail, cause):
            return Decision(
                attempt_end.give_up_slice(job, cause or Cause.STOCKOUT, detail, now), wake_in=0
            )
        case Present(SliceState.PREEMPTED):
            return Decision(
                attempt_end.give_up_slice(
                    job, Cause.PREEMPTED, "preempted before it was ready", now
                ),
                wake_in=0,
            )
        case Present(SliceState.STOPPED):
            text = f"{attempt_end.slice_name(job)} was stopped outside tpujob"
            return attempt_end.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
        case Present(SliceState.WAITING) if _other_zone(job, seen, now):
            said = f"the request has waited {duration(QUEUE_PATIENCE)} in the cloud's queue"
            return Decision(attempt_end.give_up_slice(job, Cause.STOCKOUT, said, now), wake_in=0)
        case Present(SliceState.CREATING) if now - job.state_since > CREATE_DEADLINE:
            said = f"the cloud has been at it for {duration(CREATE_DEADLINE)}"
            return Decision(attempt_end.give_up_slice(job, Cause.STOCKOUT, said, now), wake_in=0)
        case Present(SliceState.WAITING) if _waits_long(job, now):
            text = f"waiting for capacity in {attempt_end.zone(job)}: the cloud keeps the request in its queue"
            return Decision(event(job, _E.SLICE_WAITING, now, text), wake_in=soon(job, now))
        case Absent():
            return Decision(action=CreateSlice(), wake_in=soon(job, now))
        case _:
            return Decision(wake_in=soon(job, now))


def _waited_out(job: Job, now: float) -> bool:
    wait = job.spec.recovery.wait
    return wait is not None and now - circuits.waiting_since(job) > wait


def _limit_text(job: Job) -> str:
    return duration(job.spec.recovery.wait or 0)


def _other_zone(job: Job, seen: Seen, now: float) -> bool:
    """Whether it is time to leave the cloud's queue for an offer that nothing is known against."""
    here = job.slice
    if here is None or now - job.state_since < QUEUE_PATIENCE:
        return False
    offers = circuits.offers(job)
    others = [o for o in offers if (o.zone, o.type) != (here.zone, here.type)]
    return circuits.pick(others, seen.circuits, now) is not None


def _waits_long(job: Job, now: float) -> bool:
    """Said once for each request: the message stays until something else happens."""
    return now - job.state_since >= QUEUED_LONG and not job.message.startswith(
        "waiting for capacity"
    )
