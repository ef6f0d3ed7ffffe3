"""What to do next with one job: `decide(job, seen, now)`, and `follow_up` for what an action came to.

Pure. One function for each state. What is Unknown decides nothing: it is waited out and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tpujob.domain import retry, triage
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
    Wish,
    WipeJob,
)
from tpujob.domain.placement import choose, options
from tpujob.domain.spec import parse

#: an absent slice is believed gone only when a second look, this many seconds later, agrees
SECOND_LOOK = 60.0
#: hosts that never reported their agent: the slice is given back after this many seconds
LAUNCH_DEADLINE = 30 * 60.0
#: reports that stay away this long, in seconds, count as lost contact
SILENCE = 15 * 60.0
#: progress is stored at most this often, in seconds; between, it is read from the reports
PROGRESS_EVERY = 120.0
#: a held job's slice is given back without a confirmed stop after this many seconds
STOP_PATIENCE = 90.0
#: a report this young, in seconds, comes from a host that still lives
ALIVE = 20.0

_E = EventKind
_LEAVING = (Wish.RELEASE, Wish.CLEAN)


def decide(job: Job, seen: Seen, now: float) -> Decision:
    """At most one event and one action for `job`, given what was seen of the world at `now`."""
    return _BY_STATE[job.state](job, seen, now)


def follow_up(job: Job, action: Action, result: Result, now: float) -> Event | None:
    """The event that the result of an action makes; None: nothing new is known."""
    match action, result:
        case CreateSlice(), Denied(cause, error):
            return _give_up_slice(job, cause, error, now)
        case StartProgram(), Denied(cause, error):
            return _end(job, triage.End(Outcome.FAILED, cause, None, error), (), now)
        case StopProgram(), Done() if job.state is State.HOLDING and not job.stopped:
            return event(job, _E.PROGRAM_STOPPED, now, _held_text(job))
        case DeleteSlice(name), Done() if job.state is State.RELEASING:
            return event(job, _E.DELETE_ASKED, now, f"{name} is being deleted", slice=name)
        case _:
            return None


# One function for each state -----------------------------------------------------------------------------------------


def _queued(job: Job, seen: Seen, now: float) -> Decision:
    if job.wish is not Wish.RUN:
        return Decision(
            event(job, _E.CANCELLED, now, "cancelled before it had a slice", cause=Cause.CANCELLED)
        )
    if now < job.wake:
        return Decision(wake_in=job.wake - now)
    spec = parse(job.spec)
    chosen = choose(options(spec), sum(job.spent.get(b, 0) for b in ("stockouts", "quota")))
    k = len(job.slices) + 1
    request = {"name": f"tj-{job.id}-{k}", "k": k, **asdict(chosen)}
    text = f"asked for a {chosen.pricing} {chosen.type} in {chosen.zone}"
    return Decision(event(job, _E.SLICE_REQUESTED, now, text, **request), CreateSlice(), wake_in=1)


def _provisioning(job: Job, seen: Seen, now: float) -> Decision:
    slice_seen = _serving(job, seen)
    ready = isinstance(slice_seen, Present) and slice_seen.state is SliceState.READY
    if job.wish is Wish.CANCEL and ready:
        held = _hold(job, now, endpoints=_endpoints(slice_seen))
        return Decision(held, wake_in=1)
    if job.wish is not Wish.RUN:
        return _release(
            job,
            now,
            "cancelled before the slice was there",
            then=State.CANCELLED,
            cause=Cause.CANCELLED,
        )
    match slice_seen:
        case Present(SliceState.READY, endpoints):
            number = len(job.attempts) + 1
            text = f"{_slice(job)} is ready with {_hosts(len(endpoints))}; attempt {number} is being started"
            happened = event(job, _E.SLICE_READY, now, text, endpoints=_endpoints(slice_seen))
            return Decision(happened, StartProgram(), wake_in=1)
        case Present(SliceState.FAILED, _, detail, cause):
            return Decision(_give_up_slice(job, cause or Cause.STOCKOUT, detail, now), wake_in=0)
        case Present(SliceState.PREEMPTED):
            return Decision(
                _give_up_slice(job, Cause.PREEMPTED, "preempted before it was ready", now),
                wake_in=0,
            )
        case Present(SliceState.STOPPED):
            text = f"{_slice(job)} was stopped outside tpujob"
            return _release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
        case Present(SliceState.WAITING, _, detail) if detail and detail not in job.message:
            text = f"waiting for capacity in {_zone(job)}: {detail}"
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
        text = f"attempt {_number(job)} runs on {_hosts(expected)}"
        return Decision(event(job, _E.ATTEMPT_RUNNING, now, text), wake_in=1)
    if len(seen.reports) == expected:
        return Decision(wake_in=2)
    if job.attempt and now - max(job.attempt.started_at, job.wake) > LAUNCH_DEADLINE:
        missing = sorted(set(range(expected)) - {r.host for r in seen.reports})
        message = f"no word from {_list_hosts(missing)} in {LAUNCH_DEADLINE / 60:.0f} min"
        lost = triage.End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, missing[0], message)
        return Decision(_end(job, lost, seen.reports, now), wake_in=0)
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
    silent = [r for r in seen.reports if r.age > SILENCE and r.phase != "exited"]
    if silent:
        host = silent[0].host
        message = f"host {host} has not reported for {silent[0].age / 60:.0f} min"
        lost = triage.End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, host, message)
        return Decision(_end(job, lost, seen.reports, now), wake_in=0)
    progress = best_progress(seen.reports)
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
    if isinstance(slice_seen, Present) and slice_seen.state in _LOST:
        text = f"{_slice(job)} was lost while it was held: {slice_seen.state}"
        return _release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if isinstance(slice_seen, Absent):
        gone = _missing(job, now)
        if not gone:
            return Decision(_note_missing(job, now), wake_in=15)
        return _release(job, now, gone, then=State.CANCELLED, cause=Cause.CANCELLED)
    if job.wish is Wish.RUN:
        text = f"attempt {len(job.attempts) + 1} is being started on the held {_slice(job)}"
        return Decision(event(job, _E.RESUMED, now, text), StartProgram(), wake_in=1)
    expired = job.hold_until is not None and now >= job.hold_until
    if job.wish in _LEAVING or expired:
        if not job.stopped and now - job.state_since < STOP_PATIENCE:
            return Decision(action=StopProgram(), wake_in=2)
        text = "the hold ran out" if expired else "cancelled"
        return _release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if not job.stopped:
        return Decision(action=StopProgram(), wake_in=2)
    return Decision(wake_in=min(30.0, (job.hold_until or now) - now))


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
    return Decision(_arrive(job, now), wake_in=0)


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

_LOST = frozenset({SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPED})


def _user_or_slice(job: Job, seen: Seen, now: float) -> Decision | None:
    """What the user's wish or the slice's state asks for, whatever the program does."""
    if job.wish is not Wish.RUN:
        return Decision(_hold(job, now), StopProgram(), wake_in=1)
    slice_seen = _serving(job, seen)
    slice = job.slice
    match slice_seen:
        case Present(state) if state in _LOST:
            if _still_saving(seen.reports):
                return Decision(wake_in=1)
            return Decision(_end(job, _lost_slice(job, slice_seen), _reports(seen), now), wake_in=0)
        case Absent():
            gone = _missing(job, now)
            if not gone:
                return Decision(_note_missing(job, now), wake_in=15)
            cause = Cause.PREEMPTED if slice and slice.pricing == "spot" else Cause.LOST_CONTACT
            lost = triage.End(Outcome.INTERRUPTED, cause, None, gone)
            return Decision(_end(job, lost, _reports(seen), now), wake_in=0)
        case Present() if slice and slice.missing_since is not None:
            return Decision(
                event(job, _E.SLICE_FOUND, now, f"{slice.name} is there again"), wake_in=1
            )
        case _:
            return None


def _lost_slice(job: Job, lost: Present) -> triage.End:
    if lost.state is SliceState.PREEMPTED:
        return triage.End(
            Outcome.INTERRUPTED, Cause.PREEMPTED, None, f"{_slice(job)} was preempted"
        )
    detail = f": {lost.detail}" if lost.detail else ""
    cause = lost.cause or Cause.LOST_CONTACT
    return triage.End(Outcome.INTERRUPTED, cause, None, f"{_slice(job)} is {lost.state}{detail}")


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
    return f"{_slice(job)} is gone, deleted outside tpujob or lost"


def _note_missing(job: Job, now: float) -> Event | None:
    if job.slice and job.slice.missing_since is not None:
        return None
    return event(
        job, _E.SLICE_MISSING, now, f"{_slice(job)} is not to be seen; looking again in a minute"
    )


def _ended(job: Job, reports: Sequence[Report], now: float) -> Decision | None:
    end = triage.ended(reports, _host_count(job))
    return Decision(_end(job, end, reports, now), wake_in=0) if end else None


def _end(job: Job, end: triage.End, reports: Sequence[Report], now: float) -> Event:
    """The end of the newest attempt, and where the job goes from there."""
    data: dict[str, Any] = {"outcome": end.outcome, "cause": end.cause, "host": end.host}
    data["progress"] = asdict(best_progress(reports)) if reports else None
    if end.cause is None:
        text = f"attempt {_number(job)} succeeded: {end.message}"
        return event(job, _E.ATTEMPT_ENDED, now, text, then=State.SUCCEEDED, **data)
    next_try = retry.after(job, end.cause)
    said = f"attempt {_number(job)} ended, {end.cause}: {end.message}"
    if isinstance(next_try, retry.GiveUp):
        return event(
            job, _E.ATTEMPT_ENDED, now, f"{said}; {next_try.why}", then=State.FAILED, **data
        )
    data["budget"] = next_try.budget
    lost_slice = any(r.notice for r in reports)
    if next_try.same_slice and not lost_slice:
        text = (
            f"{said}; starting again on the same slice in {next_try.delay:.0f} s{_left(next_try)}"
        )
        return event(job, _E.ATTEMPT_RETRIED, now, text, delay=next_try.delay, **data)
    return event(job, _E.ATTEMPT_ENDED, now, f"{said}{_left(next_try)}", then=State.QUEUED, **data)


def _give_up_slice(job: Job, cause: Cause, error: str, now: float) -> Event:
    """The request for a slice came to nothing: another one later, or the end of the job."""
    next_try = retry.after(job, cause)
    text = f"no slice in {_zone(job)}, {cause}: {error}"
    if isinstance(next_try, retry.GiveUp):
        return event(job, _E.RELEASE_STARTED, now, text, then=State.FAILED, cause=cause)
    return event(
        job, _E.RELEASE_STARTED, now, text, then=State.QUEUED, cause=cause, budget=next_try.budget
    )


def _release(job: Job, now: float, text: str, *, then: State, cause: Cause) -> Decision:
    name = job.slice.name if job.slice else ""
    return Decision(
        event(job, _E.RELEASE_STARTED, now, text, then=then, cause=cause),
        DeleteSlice(name),
        wake_in=0,
    )


def _hold(job: Job, now: float, **data: Any) -> Event:
    until = now + parse(job.spec).hold
    text = "cancelled; stopping the program" if "endpoints" not in data else _held_text(job)
    given = {"outcome": Outcome.INTERRUPTED, "cause": Cause.CANCELLED, "hold_until": until, **data}
    return event(job, _E.HELD, now, text, **given)


def _arrive(job: Job, now: float) -> Event:
    """The end of RELEASING: what was planned, unless the user has asked for something else since."""
    then = job.then or State.CANCELLED
    if then is State.QUEUED and job.wish is not Wish.RUN:
        return event(job, _E.CANCELLED, now, "cancelled", cause=Cause.CANCELLED)
    if then is State.QUEUED or (then is State.CANCELLED and job.wish is Wish.RUN):
        delay = _requeue_delay(job)
        text = f"waiting {delay:.0f} s, then asking for another slice" + (
            f" (after {job.cause})" if job.cause else ""
        )
        return event(job, _E.REQUEUED, now, text, delay=delay)
    kind = {State.SUCCEEDED: _E.SUCCEEDED, State.FAILED: _E.FAILED}.get(then, _E.CANCELLED)
    return event(job, kind, now, _reason(job, then), cause=job.cause)


def _requeue_delay(job: Job) -> float:
    """The back-off of the cause that led here; its budget is spent already."""
    if job.cause is None:
        return 0.0
    policy = retry.POLICIES[job.cause]
    used = max(0, job.spent.get(policy.budget, 1) - 1)
    return retry.backoff(policy, used, seed=f"{job.id}:{policy.budget}:{used}")


def _reason(job: Job, then: State) -> str:
    if then is State.CANCELLED:
        return "cancelled; nothing is billed any more"
    return job.slices[-1].delete_reason if job.slices else job.message


def best_progress(reports: Sequence[Report]) -> Progress:
    """One progress for all hosts: of those that know a step, the one that is furthest behind; host 0's metrics."""
    if not reports:
        return Progress()
    first = min(reports, key=lambda r: r.host).progress
    stepping = [r.progress for r in reports if r.progress.step is not None]
    behind = min(stepping, key=lambda p: p.step or 0, default=first)
    return Progress(
        step=behind.step,
        steps=behind.steps,
        loss=behind.loss,
        phase=first.phase,
        checkpoint=max(
            (p.checkpoint for p in stepping if p.checkpoint is not None), default=first.checkpoint
        ),
        resumed_from=first.resumed_from if first.resumed_from is not None else behind.resumed_from,
        metrics=first.metrics,
    )


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


def _soon(job: Job, now: float) -> float:
    """Young requests are looked at often, old ones rarely: from 1 to 30 seconds."""
    return max(1.0, min(30.0, (now - job.state_since) / 8))


def _host_count(job: Job) -> int:
    return len(job.slice.endpoints) if job.slice else 0


def _slice(job: Job) -> str:
    return job.slice.name if job.slice else "the slice"


def _zone(job: Job) -> str:
    return job.slice.zone if job.slice else "any zone"


def _number(job: Job) -> int:
    return job.attempt.number if job.attempt else 0


def _hosts(n: int) -> str:
    return "1 host" if n == 1 else f"{n} hosts"


def _list_hosts(hosts: Sequence[int]) -> str:
    return ("host " if len(hosts) == 1 else "hosts ") + ", ".join(map(str, hosts))


def _left(again: retry.Again) -> str:
    return "" if again.left is None else f" ({again.left} more {again.budget} allowed)"


def _held_text(job: Job) -> str:
    price = (
        f" at ${job.slice.usd_per_hour:.2f}/h"
        if job.slice and job.slice.usd_per_hour is not None
        else ""
    )
    return f"stopped; {_slice(job)} is held{price} until the hold runs out"
