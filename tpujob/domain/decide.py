"""What to do next with one job: `decide(job, seen, now)`, and `follow_up` for what an action came to.

Pure. One function for each state. What is Unknown decides nothing: it is waited out and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tpujob.domain import capacity, endings, stall, triage
from tpujob.domain.condemned import LOST, STOP_PATIENCE, give_back, is_condemned
from tpujob.domain.lifecycle import event
from tpujob.domain.model import (
    Absent,
    Action,
    Cause,
    CreateSlice,
    Decision,
    DeleteSlice,
    Denied,
    Done,
    Event,
    EventKind,
    Job,
    Outcome,
    Present,
    Progress,
    Report,
    Result,
    Seen,
    SliceSeen,
    SliceState,
    StartProgram,
    State,
    StopProgram,
    Unknown,
    WipeJob,
    Wish,
)
from tpujob.domain.placement import options
from tpujob.domain.spec import parse

#: an absent slice is believed gone only when a second look, this many seconds later, agrees
SECOND_LOOK = 60.0
#: hosts that never reported their agent: the slice is given back after this many seconds
LAUNCH_DEADLINE = 30 * 60.0
#: a request that the cloud has taken up, but not made a slice of, is given up after this many seconds
CREATE_DEADLINE = 60 * 60.0
#: a request that only waits in the cloud's queue makes way for another zone after this many seconds
QUEUE_PATIENCE = 30 * 60.0
#: a request that the cloud keeps in its queue is called waiting after this many seconds
QUEUED_LONG = 10.0
#: progress is stored at most this often, in seconds; between, it is read from the reports
PROGRESS_EVERY = 120.0
#: a report this young, in seconds, comes from a host that still lives
ALIVE = 20.0

_E = EventKind
_LEAVING = (Wish.RELEASE, Wish.CLEAN)


def decide(job: Job, seen: Seen, now: float) -> Decision:
    """At most one event and one action for `job`, given what was seen of the world at `now`."""
    decision = _BY_STATE[job.state](job, seen, now)
    if job.condemned and decision.event is None and decision.action is None:
        return give_back(job, seen, now) or decision
    return decision


def follow_up(job: Job, action: Action, result: Result, now: float) -> Event | None:
    """The event that the result of an action makes; None: nothing new is known."""
    match action, result:
        case CreateSlice(), Denied(cause, error):
            return endings.give_up_slice(job, cause, error, now)
        case StartProgram(), Denied(cause, error):
            return endings.end_attempt(job, triage.End(Outcome.FAILED, cause, None, error), (), now)
        case StopProgram(), Done() if job.state is State.HOLDING and not job.stopped:
            return event(job, _E.PROGRAM_STOPPED, now, endings.held_text(job))
        case StopProgram(name), Done() if any(s.name == name for s in job.condemned):
            text = f"the program on {name} is stopped"
            return event(job, _E.CONDEMNED_STOPPED, now, text, slice=name)
        case DeleteSlice(name), Done() if job.state is State.RELEASING or is_condemned(job, name):
            return event(job, _E.DELETE_ASKED, now, f"{name} is being deleted", slice=name)
        case _:
            return None


# One function for each state -----------------------------------------------------------------------------------------


def _queued(job: Job, seen: Seen, now: float) -> Decision:
    if job.wish is not Wish.RUN:
        text = "cancelled before it had a slice"
        return _end_queued(job, event(job, _E.CANCELLED, now, text, cause=Cause.CANCELLED))
    if _waited_out(job, now):
        cause = job.slices[-1].refused if job.slices else None
        text = f"no slice in {_limit_text(job)}, which `recovery.wait` allows"
        return _end_queued(job, event(job, _E.FAILED, now, text, cause=cause or Cause.STOCKOUT))
    if now < job.wake:
        return Decision(wake_in=job.wake - now)
    offers = options(parse(job.spec))
    chosen = capacity.pick(offers, seen.circuits, now)
    if chosen is None:
        return Decision(wake_in=capacity.first_to_open(offers, seen.circuits)[1] - now)
    k = job.slices[-1].k + 1 if job.slices else 1
    request = {"name": f"tj-{job.id}-{k}", "k": k, **asdict(chosen)}
    text = f"asked for a {chosen.pricing} {chosen.type} in {chosen.zone}"
    return Decision(event(job, _E.SLICE_REQUESTED, now, text, **request), CreateSlice(), wake_in=1)


def _end_queued(job: Job, end: Event) -> Decision:
    """A job ends only when it owns nothing any more."""
    return Decision(wake_in=2) if job.condemned else Decision(end)


def _provisioning(job: Job, seen: Seen, now: float) -> Decision:
    slice_seen = _serving(job, seen)
    ready = isinstance(slice_seen, Present) and slice_seen.state is SliceState.READY
    if job.wish is Wish.CANCEL and ready:
        held = endings.hold(job, now, (), endpoints=_endpoints(slice_seen))
        return Decision(held, wake_in=1)
    if job.wish is not Wish.RUN:
        return endings.release(
            job,
            now,
            "cancelled before the slice was there",
            then=State.CANCELLED,
            cause=Cause.CANCELLED,
        )
    if _waited_out(job, now) and not ready:
        text = f"no slice in {_limit_text(job)}, which `recovery.wait` allows"
        return endings.release(job, now, text, then=State.FAILED, cause=Cause.STOCKOUT)
    match slice_seen:
        case Present(SliceState.READY) if any(not s.stopped for s in job.condemned):
            return Decision(wake_in=2)  # two programs must never write into one workdir
        case Present(SliceState.READY, endpoints):
            number = len(job.attempts) + 1
            there = f"{endings.slice_name(job)} is ready with {endings.hosts_text(len(endpoints))}"
            text = f"{there}; attempt {number} is being started"
            happened = event(job, _E.SLICE_READY, now, text, endpoints=_endpoints(slice_seen))
            return Decision(happened, StartProgram(), wake_in=1)
        case Present(SliceState.FAILED, _, detail, cause):
            return Decision(
                endings.give_up_slice(job, cause or Cause.STOCKOUT, detail, now), wake_in=0
            )
        case Present(SliceState.PREEMPTED):
            return Decision(
                endings.give_up_slice(job, Cause.PREEMPTED, "preempted before it was ready", now),
                wake_in=0,
            )
        case Present(SliceState.STOPPED):
            text = f"{endings.slice_name(job)} was stopped outside tpujob"
            return endings.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
        case Present(SliceState.WAITING) if _other_zone(job, seen, now):
            said = f"the request has waited {QUEUE_PATIENCE / 60:.0f} min in the cloud's queue"
            return Decision(endings.give_up_slice(job, Cause.STOCKOUT, said, now), wake_in=0)
        case Present(SliceState.CREATING) if now - job.state_since > CREATE_DEADLINE:
            said = f"the cloud has been at it for {CREATE_DEADLINE / 60:.0f} min"
            return Decision(endings.give_up_slice(job, Cause.STOCKOUT, said, now), wake_in=0)
        case Present(SliceState.WAITING) if _waits_long(job, now):
            text = f"waiting for capacity in {endings.zone(job)}: the cloud keeps the request in its queue"
            return Decision(event(job, _E.SLICE_WAITING, now, text), wake_in=_soon(job, now))
        case Absent():
            return Decision(action=CreateSlice(), wake_in=_soon(job, now))
        case _:
            return Decision(wake_in=_soon(job, now))


def _preparing(job: Job, seen: Seen, now: float) -> Decision:
    urgent = _user_or_slice(job, seen, now)
    if urgent:
        return urgent
    if isinstance(seen.reports, Unknown) or now < job.wake:
        return Decision(wake_in=max(1.0, job.wake - now))
    ended = _ended(job, seen.reports, now)
    if ended:
        return ended
    expected = _host_count(job)
    if sum(r.phase in ("running", "exited") for r in seen.reports) == expected:
        text = f"attempt {endings.number(job)} runs on {endings.hosts_text(expected)}"
        return Decision(event(job, _E.ATTEMPT_RUNNING, now, text), wake_in=1)
    if len(seen.reports) == expected:
        return _stalled(job, seen, seen.reports, now) or Decision(wake_in=2)
    if job.attempt and now - max(job.attempt.started_at, job.wake) > LAUNCH_DEADLINE:
        missing = sorted(set(range(expected)) - {r.host for r in seen.reports})
        message = f"no word from {endings.list_hosts(missing)} in {LAUNCH_DEADLINE / 60:.0f} min"
        lost = triage.End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, missing[0], message)
        return Decision(endings.end_attempt(job, lost, seen.reports, now), wake_in=0)
    return Decision(action=StartProgram(), wake_in=2)


def _running(job: Job, seen: Seen, now: float) -> Decision:
    urgent = _user_or_slice(job, seen, now)
    if urgent:
        return urgent
    if isinstance(seen.reports, Unknown):
        return Decision()
    ended = _ended(job, seen.reports, now)
    if ended:
        return ended
    stalled = _stalled(job, seen, seen.reports, now)
    if stalled:
        return stalled
    progress = endings.best_progress(seen.reports)
    if job.attempt and _worth_storing(
        job.attempt.progress, job.attempt.progress_at or job.state_since, progress, now
    ):
        text = f"step {progress.step}"
        return Decision(event(job, _E.PROGRESSED, now, text, progress=asdict(progress)))
    return Decision(
        wake_in=2 if any(r.phase != "running" or r.notice for r in seen.reports) else 10
    )


def _holding(job: Job, seen: Seen, now: float) -> Decision:
    slice_seen = _serving(job, seen)
    if isinstance(slice_seen, Present) and slice_seen.state in LOST:
        text = f"{endings.slice_name(job)} was lost while it was held: {slice_seen.state}"
        return endings.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if isinstance(slice_seen, Absent):
        gone = _missing(job, now)
        if not gone:
            return Decision(_note_missing(job, now), wake_in=15)
        return endings.release(job, now, gone, then=State.CANCELLED, cause=Cause.CANCELLED)
    if job.wish is Wish.RUN:
        text = f"attempt {len(job.attempts) + 1} is being started on the held {endings.slice_name(job)}"
        return Decision(event(job, _E.RESUMED, now, text), StartProgram(), wake_in=1)
    expired = job.hold_until is not None and now >= job.hold_until
    if job.wish in _LEAVING or expired:
        patience = STOP_PATIENCE + parse(job.spec).stop_grace
        if not job.stopped and now - job.state_since < patience:
            return Decision(action=StopProgram(), wake_in=2)
        text = "the hold ran out" if expired else "cancelled"
        return endings.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if not job.stopped:
        return Decision(action=StopProgram(), wake_in=2)
    saved = _saved(job, _reports(seen), now)
    return Decision(saved, wake_in=1 if saved else min(30.0, (job.hold_until or now) - now))


def _releasing(job: Job, seen: Seen, now: float) -> Decision:
    for one in (s for s in job.slices if s.gone_at is None):
        match seen.slices.get(one.name, Unknown("not looked at")):
            case Absent() if one.delete_asked_at is not None:
                gone = event(job, _E.SLICE_GONE, now, f"{one.name} is gone", slice=one.name)
                return Decision(gone, wake_in=0)
            case Present(SliceState.DELETING) if one.delete_asked_at is not None:
                return Decision(wake_in=_soon(job, now))
            case _:
                return Decision(action=DeleteSlice(one.name), wake_in=_soon(job, now))
    return Decision(endings.arrive(job, seen.circuits, now), wake_in=0)


def _final(job: Job, seen: Seen, now: float) -> Decision:
    return Decision(action=WipeJob()) if job.wish is Wish.CLEAN else Decision(wake_in=3600)


_BY_STATE: Mapping[State, Callable[[Job, Seen, float], Decision]] = {
    State.QUEUED: _queued,
    State.PROVISIONING: _provisioning,
    State.PREPARING: _preparing,
    State.RUNNING: _running,
    State.HOLDING: _holding,
    State.RELEASING: _releasing,
    State.SUCCEEDED: _final,
    State.FAILED: _final,
    State.CANCELLED: _final,
}


# What several states share -------------------------------------------------------------------------------------------


def _user_or_slice(job: Job, seen: Seen, now: float) -> Decision | None:
    """What the user's wish or the slice's state asks for, whatever the program does."""
    if job.wish is not Wish.RUN:
        return Decision(endings.hold(job, now, _reports(seen)), StopProgram(), wake_in=1)
    slice_seen = _serving(job, seen)
    slice = job.slice
    match slice_seen:
        case Present(state) if state in LOST:
            if _still_saving(seen.reports):
                return Decision(wake_in=1)
            reports = _reports(seen)
            lost = _lost_slice(job, slice_seen, reports)
            return Decision(endings.end_attempt(job, lost, reports, now), wake_in=0)
        case Absent():
            gone = _missing(job, now)
            if not gone:
                return Decision(_note_missing(job, now), wake_in=15)
            cause = Cause.PREEMPTED if slice and slice.pricing == "spot" else Cause.LOST_CONTACT
            lost = triage.End(Outcome.INTERRUPTED, cause, None, gone)
            return Decision(endings.end_attempt(job, lost, _reports(seen), now), wake_in=0)
        case Present() if slice and slice.missing_since is not None:
            return Decision(
                event(job, _E.SLICE_FOUND, now, f"{slice.name} is there again"), wake_in=1
            )
        case _:
            return None


def _lost_slice(job: Job, lost: Present, reports: Sequence[Report]) -> triage.End:
    says = (f"the cloud says of {endings.slice_name(job)}: {lost.detail or lost.state}",)
    if lost.state is SliceState.PREEMPTED:
        saved = triage.saved_words(reports)
        message = f"{endings.slice_name(job)} was preempted" + (f"; {saved}" if saved else "")
        return triage.End(Outcome.INTERRUPTED, Cause.PREEMPTED, None, message, says)
    detail = f": {lost.detail}" if lost.detail else ""
    cause = lost.cause or Cause.LOST_CONTACT
    message = f"{endings.slice_name(job)} is {lost.state}{detail}"
    return triage.End(Outcome.INTERRUPTED, cause, None, message, says)


def _still_saving(reports: Sequence[Report] | Unknown) -> bool:
    """A preempted host that still reports is still saving: it is not cut off."""
    if isinstance(reports, Unknown):
        return False
    return any(r.phase != "exited" and r.age < ALIVE for r in reports)


def _missing(job: Job, now: float) -> str:
    """Why an absent slice is believed gone; empty: look again."""
    since = job.slice.missing_since if job.slice else None
    if since is None or now - since < SECOND_LOOK:
        return ""
    return f"{endings.slice_name(job)} is gone, deleted outside tpujob or lost"


def _note_missing(job: Job, now: float) -> Event | None:
    if job.slice and job.slice.missing_since is not None:
        return None
    return event(
        job,
        _E.SLICE_MISSING,
        now,
        f"{endings.slice_name(job)} is not to be seen; looking again in a minute",
    )


def _ended(job: Job, reports: Sequence[Report], now: float) -> Decision | None:
    end = triage.ended(reports, _host_count(job))
    if end is None:
        return None
    happened = endings.end_attempt(job, end, reports, now)
    condemns = happened.kind is _E.ATTEMPT_CONDEMNED and job.slice is not None
    stop = StopProgram(job.slice.name) if condemns and job.slice else None
    return Decision(happened, stop, wake_in=0)


def _stalled(job: Job, seen: Seen, reports: Sequence[Report], now: float) -> Decision | None:
    """A program that neither ends nor goes on. After an outage of the storage every report is old: the hosts get the
    time to write anew. Nothing is concluded while the cloud itself cannot be asked: it may be us who are cut off."""
    if seen.readable_for < SECOND_LOOK or not isinstance(_serving(job, seen), Present):
        return None
    end = (
        stall.silent(reports, seen.silent)
        or stall.left_behind(reports, _host_count(job))
        or stall.hung(parse(job.spec).recovery.stall, reports)
    )
    return Decision(endings.end_attempt(job, end, reports, now), wake_in=0) if end else None


def _saved(job: Job, reports: Sequence[Report], now: float) -> Event | None:
    """What the program still did while it was being stopped."""
    progress = endings.best_progress(reports)
    stored = job.attempt.progress if job.attempt else None
    if progress.step is None or progress == stored or any(r.phase != "exited" for r in reports):
        return None
    text = f"stopped at step {progress.step}"
    return event(job, _E.PROGRESSED, now, text, progress=asdict(progress))


def _worth_storing(stored: Progress, since: float, fresh: Progress, now: float) -> bool:
    return fresh.step is not None and fresh.step != stored.step and now - since >= PROGRESS_EVERY


# Words ---------------------------------------------------------------------------------------------------------------


def _serving(job: Job, seen: Seen) -> SliceSeen:
    return seen.slices.get(job.slice.name, Unknown("not looked at")) if job.slice else Absent()


def _reports(seen: Seen) -> tuple[Report, ...]:
    return () if isinstance(seen.reports, Unknown) else seen.reports


def _endpoints(seen: SliceSeen) -> list[list[Any]]:
    assert isinstance(seen, Present)
    return [[e.host, e.internal_ip, e.external_ip] for e in seen.endpoints]


def _waited_out(job: Job, now: float) -> bool:
    wait = parse(job.spec).recovery.wait
    return wait is not None and now - capacity.waiting_since(job) > wait


def _limit_text(job: Job) -> str:
    wait = parse(job.spec).recovery.wait or 0
    return f"{wait / 3600:.1f} h" if wait >= 5400 else f"{wait / 60:.0f} min"


def _other_zone(job: Job, seen: Seen, now: float) -> bool:
    """Whether it is time to leave the cloud's queue for an offer that nothing is known against."""
    here = job.slice
    if here is None or now - job.state_since < QUEUE_PATIENCE:
        return False
    offers = options(parse(job.spec))
    others = [o for o in offers if (o.zone, o.type) != (here.zone, here.type)]
    return capacity.pick(others, seen.circuits, now) is not None


def _waits_long(job: Job, now: float) -> bool:
    """Said once for each request: the message stays until something else happens."""
    return now - job.state_since >= QUEUED_LONG and not job.message.startswith(
        "waiting for capacity"
    )


def _soon(job: Job, now: float) -> float:
    """Young requests are looked at often, old ones rarely: from 1 to 30 seconds."""
    return max(1.0, min(30.0, (now - job.state_since) / 8))


def _host_count(job: Job) -> int:
    return len(job.slice.endpoints) if job.slice else 0
