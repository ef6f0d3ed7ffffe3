"""PREPARING and RUNNING: the program is started on every host, runs, and is interrupted or ends. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.actions import Decision, StartProgram, StopProgram, soon
from tpujob.domain.decide import deadlines, holding, limits, planned_end, releasing
from tpujob.domain.decide.attempt_end import (
    began_at,
    best_progress,
    end_attempt,
    number,
    slice_name,
)
from tpujob.domain.events import (
    AttemptRunning,
    Event,
    EventKind,
    Progressed,
    ReportsIgnored,
    Warned,
    Watched,
)
from tpujob.domain.failures import contact, preemption_notice, retry, stall, triage, warnings
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, End, Job, Outcome, Progress, Proof, State
from tpujob.domain.observations import Absent, HostReport, Observation, Present, SliceState, Unknown
from tpujob.domain.progress import steps_made_again
from tpujob.domain.text import duration, list_hosts, many
from tpujob.protocol import Phase
from tpujob.protocol.limits import SAVING

#: seconds after which an attempt ends if some hosts have never reported
LAUNCH_DEADLINE = 30 * 60.0
#: seconds for which reports must have been readable before that, and since all hosts accepted the start: after an
#: outage of the backend or of SSH, the hosts were started only recently
LAUNCH_HEARD = 10 * 60.0
#: seconds after which reports readable for a minute suffice: if many polls fail, ten minutes may never pass without one
LAUNCH_LATEST = 2 * LAUNCH_DEADLINE
#: seconds after which an attempt ends if a host reports, but has not started the program
SETUP_DEADLINE = 2 * 3600.0
#: maximum seconds between two polls of a slice on which the program starts again later: it may be lost meanwhile
PAUSED_LOOK = 60.0
#: minimum seconds between two stored events of progress; in between it is read from the reports, without a write
PROGRESS_EVERY = 600.0
#: seconds by which the report of a live host may be late
LATE = 5.0

_E = EventKind


def preparing(job: Job, seen: Observation, now: float) -> Decision:
    began = _began(job, seen.heard, now)
    if began and all(r.phase == Phase.EXITED for r in seen.heard):
        return began  # the program has ended since
    urgent = _interrupted(job, seen, now) or _used_up(job, seen, now)
    if urgent:
        return urgent
    wake = retry.due_at(job.wake, now)
    if isinstance(seen.reports, Unknown) or now < wake:
        return Decision(wake_in=min(PAUSED_LOOK, max(1.0, wake - now)))
    if taken_over := _take_over(job, seen, seen.reports):
        return taken_over
    over = _ended(job, seen, seen.reports, now)
    return over or _ignored(job, seen, now) or began or _start(job, seen, seen.reports, now)


def running(job: Job, seen: Observation, now: float) -> Decision:
    urgent = _interrupted(job, seen, now) or _used_up(job, seen, now)
    if urgent:
        return urgent
    if isinstance(seen.reports, Unknown):
        return Decision()
    if taken_over := _take_over(job, seen, seen.reports):
        return taken_over
    over = _ended(job, seen, seen.reports, now) or _stalled(job, seen, seen.reports, now)
    over = over or _gives_way(job, seen, seen.reports, now)
    over = over or deadlines.go_back(job, seen, seen.reports, now)
    noted = _watched(job, seen, now) or _ignored(job, seen, now) or _warned(job, seen.reports, now)
    return over or noted or _go_on(job, seen.reports, now)


# While nothing interrupts it -----------------------------------------------------------------------------------------


def _began(job: Job, reports: Sequence[HostReport], now: float) -> Decision | None:
    """Return the event that the program was started on every host; None: not yet. The event's own time is now, as other
    events may have been stored since the start; its payload has the time of the start."""
    at = began_at(job, reports, now)
    if at is None:
        return None
    text = f"attempt {number(job)} runs on {many(job.hosts, 'host')}"
    versions = next((r.versions for r in reports if r.versions), dict[str, str]())
    running = AttemptRunning(versions, at)
    return Decision(event(job, _E.ATTEMPT_RUNNING, now, text, running), wake_in=1)


def _start(job: Job, seen: Observation, reports: Sequence[HostReport], now: float) -> Decision:
    if len(reports) == job.hosts:
        over = _late(job, seen, reports, now) or _stalled(job, seen, reports, now)
        return over or _watched(job, seen, now) or Decision(wake_in=2)
    if lost := _lost_before_start(job, seen, reports, now):
        return _over(job, lost, reports, now)
    wake = retry.due_at(job.wake, now)
    waited = now - max(job.attempt.started_at, wake) if job.attempt else 0.0
    just = seen.launched_for is not None and seen.launched_for < LAUNCH_HEARD
    heard = _in_touch(job, seen, LAUNCH_HEARD if waited <= LAUNCH_LATEST else releasing.SECOND_LOOK)
    if waited > LAUNCH_DEADLINE and heard and not just:
        unheard = sorted(set(range(job.hosts)) - {r.host for r in reports})
        message = f"no report from {list_hosts(unheard)} in {duration(waited)}"
        # no host is started before each of them answers
        dead = [host for host in unheard if host in seen.silent]
        message += f"; {_unanswered(dead)}" if dead else ""
        lost = End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, (dead or unheard)[0], message)
        return _over(job, lost, reports, now)
    start = Decision(action=StartProgram(), wake_in=max(2.0, soon(job, now)))
    watches = waited > LAUNCH_DEADLINE - LAUNCH_HEARD or seen.silent
    return (_watched(job, seen, now) if watches else None) or start


def _take_over(job: Job, seen: Observation, reports: Sequence[HostReport]) -> Decision | None:
    """Start the agents again that were killed: each takes over its program. None: no agent was, or another host does
    not answer, without which nothing is started."""
    killed = [r for r in reports if r.host in seen.agents_died and r.age < stall.SILENCE]
    if not killed or seen.silent or not isinstance(seen.serving(job), Present):
        return None
    return Decision(action=StartProgram(), wake_in=2)


def _go_on(job: Job, reports: Sequence[HostReport], now: float) -> Decision:
    progress = best_progress(reports)
    attempt = job.attempt
    if attempt and _worth_storing(
        attempt.progress, attempt.progress_at or job.state_since, progress, now
    ):
        first = attempt.progress.step is None
        kind, text = _E.PROGRESSED, f"step {progress.step}"
        if progress.nonfinite and not attempt.progress.nonfinite:
            kind, text = _E.LOSS_NONFINITE, str(progress.nonfinite)
        elif attempt.progress.nonfinite and not progress.nonfinite:
            kind, text = _E.LOSS_FINITE, f"loss is finite again at step {progress.step}"
        elif first:
            text = _first_step(job, progress)
        return Decision(event(job, kind, now, text, Progressed(progress, first)))
    ending = any(r.phase != Phase.RUNNING or r.notice for r in reports)
    return Decision(wake_in=2 if ending else 10)


def _first_step(job: Job, progress: Progress) -> str:
    again = steps_made_again(job, progress)
    note = f"; {many(again, 'step')} of earlier attempts {'is' if again == 1 else 'are'} repeated"
    return f"first step seen: {progress.step}{note if again else ''}"


def _worth_storing(stored: Progress, since: float, fresh: Progress, now: float) -> bool:
    """Return whether the progress is stored now: the first step at once, as there was no training before it, and a loss
    that is not finite; one that comes and goes is not stored each time."""
    if fresh.nonfinite and not stored.nonfinite:
        return True
    if fresh.step is None or fresh.step == stored.step:
        return False
    return stored.step is None or now - since >= PROGRESS_EVERY


# What interrupts it --------------------------------------------------------------------------------------------------


def _interrupted(job: Job, seen: Observation, now: float) -> Decision | None:
    """Decide what the user's request or the slice's state requires. The success of a program comes first."""
    done = triage.succeeded(seen.heard, job.hosts)
    if done:
        return _over(job, done, seen.heard, now)
    if job.desired is not DesiredState.RUN or job.next_state is State.QUEUED:
        return Decision(holding.stop(job, seen.heard, now), StopProgram(), wake_in=1)
    match seen.serving(job):
        case Present(state) as look if state.lost:
            if _still_saving(seen):
                return Decision(wake_in=1)
            return _over(job, _lost_slice(job, look, seen.heard), seen.reports, now)
        case Absent() if job.slice:
            cause = (
                Cause.PREEMPTED
                if find_pricing(job.slice.pricing).preemptible
                else Cause.LOST_CONTACT
            )
            lost = End(Outcome.INTERRUPTED, cause, None, releasing.vanished(job.slice))
            unsure = releasing.look_again(job, job.slice, seen, now)
            return unsure or _over(job, lost, seen.reports, now)
        case Present() if job.slice and (found := releasing.note_found(job, job.slice, now)):
            return Decision(found, wake_in=1)
        case _:
            return None


def _used_up(job: Job, seen: Observation, now: float) -> Decision | None:
    """Decide whether a limit or the planned end of its slice ends the attempt; not one whose program has just ended by
    itself."""
    limit = limits.used_up(job, seen, now)
    if not (limit or planned_end.is_due(job, now)) or triage.ended(seen.heard, job.hosts):
        return None
    if limit is None:
        stopped = holding.stop_before_end(job, seen.heard, now)
    else:
        stopped = holding.stop_for_good(job, limit, seen.heard, now)
    return Decision(stopped, StopProgram(), wake_in=1)


def _gives_way(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> Decision | None:
    """Stop the program for a job of a higher priority; not while its slice cannot be seen, or after a notice."""
    look = seen.serving(job)
    sees = isinstance(look, Present) and look.state is SliceState.READY
    if not seen.gives_way_to or not sees or any(r.notice for r in reports):
        return None
    stopped = holding.give_way(job, seen.gives_way_to, reports, now)
    return Decision(stopped, StopProgram(), wake_in=1)


def _lost_slice(job: Job, look: Present, reports: Sequence[HostReport]) -> End:
    evidence = (
        Proof(None, f"the cloud reports for {slice_name(job)}: {look.detail or look.state}"),
    )
    if look.state is SliceState.PREEMPTED:
        saved = preemption_notice.saved_words(reports)
        message = f"{slice_name(job)} was preempted" + (f"; {saved}" if saved else "")
        return End(Outcome.INTERRUPTED, Cause.PREEMPTED, None, message, evidence)
    detail = f": {look.detail}" if look.detail else ""
    message = f"{slice_name(job)} is {look.state}{detail}"
    return End(Outcome.INTERRUPTED, look.cause or Cause.LOST_CONTACT, None, message, evidence)


def _still_saving(seen: Observation) -> bool:
    """Return whether a host of a lost slice still reports: its program may be saving a checkpoint."""
    alive = min(seen.report_every, SAVING) + LATE
    return any(r.phase != Phase.EXITED and r.age < alive for r in seen.heard)


# How it ends ---------------------------------------------------------------------------------------------------------


def _over(job: Job, end: End, reports: Sequence[HostReport] | Unknown, now: float) -> Decision:
    return Decision(end_attempt(job, end, reports, now), wake_in=0)


def _ended(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> Decision | None:
    end = triage.ended(reports, job.hosts)
    if end is None:
        return None
    # a verdict and the cloud's notice are proved whatever has become of the other hosts
    proved = end.verdict or end.cause in (None, Cause.PREEMPTED, Cause.MAINTENANCE)
    if not proved and (unsure := _lost_peer(job, seen, reports, now)):
        return unsure
    happened = end_attempt(job, end, reports, now)
    if happened.kind in (_E.ATTEMPT_CONDEMNED, _E.ATTEMPT_SWAPPED):
        return Decision(happened, StopProgram(slice_name(job)), wake_in=0)
    # before the deletion of the slice, whose notice would let the program save wrong numbers
    spoilt = end.verdict and any(r.phase != Phase.EXITED for r in reports)
    return Decision(happened, StopProgram() if spoilt else None, wake_in=0)


def _lost_peer(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> Decision | None:
    """Decide about an end that the loss of another host, or of the slice, may have caused: wait until that is known, or
    end the attempt for that host. None: every other host has given a sign of life, so the end counts."""
    doubtful = contact.in_doubt(reports, job.hosts, seen.answered)
    suspects = [r for r in reports if r.host in doubtful | seen.agents_died]
    unheard = [r for r in contact.unreported(job, reports, now) if r.host in doubtful]
    if lost := _silent(job, seen, suspects, unheard, failed=True):
        return _over(job, lost, reports, now)
    newest = min(r.age for r in reports if r.phase == Phase.EXITED)
    # the cloud shows the loss of a slice some seconds after its programs have ended
    echoes = job.hosts > 1 and newest < triage.SETTLE and seen.evidence
    if suspects or unheard or (echoes and triage.only_echoes(reports)):
        return _watched(job, seen, now) or Decision(wake_in=2)
    return None


def _lost_before_start(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> End | None:
    """Return the end of an attempt that cannot start again on its slice, as a host was lost. That others answer shows
    that the way to the hosts is open."""
    look = seen.serving(job)
    ready = isinstance(look, Present) and look.state is SliceState.READY
    others = set(range(job.hosts)) - set(seen.silent)
    if not ready or not others or not contact.starts_again(job):
        return None
    return _silent(job, seen, (), contact.unreported(job, reports, now))


def _silent(
    job: Job,
    seen: Observation,
    reports: Sequence[HostReport],
    unheard: Sequence[HostReport] = (),
    *,
    failed: bool = False,
) -> End | None:
    """Return the end for a host that is lost. Nothing is decided unless the slice was seen: the backend may be cut
    off. `unheard`: what stands for hosts without a report. Of these, a host that answers over SSH has lost nothing: the
    program may have been started there only now, long after the attempt."""
    if not _in_touch(job, seen):
        return None
    return stall.silent(
        [*reports, *(r for r in unheard if r.host in seen.silent)],
        seen.silent,
        seen.report_every,
        disturbed=seen.disturbed,
        agents_died=seen.agents_died,
        failed=failed,
    )


def _late(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> Decision | None:
    """Decide about hosts whose set-up takes too long. It begins when every host has accepted the start, which may be
    hours after the attempt if the backend or SSH was down."""
    waits = [r for r in reports if r.phase not in (Phase.RUNNING, Phase.EXITED)]
    if not job.attempt or not waits:
        return None
    waited = now - max(job.attempt.started_at, retry.due_at(job.wake, now))
    if min(waited, waited if seen.launched_for is None else seen.launched_for) < SETUP_DEADLINE:
        return None
    message = f"host {waits[0].host} is still in {waits[0].phase} after {duration(SETUP_DEADLINE)}"
    return _over(job, End(Outcome.FAILED, Cause.SETUP, waits[0].host, message), reports, now)


def _stalled(
    job: Job, seen: Observation, reports: Sequence[HostReport], now: float
) -> Decision | None:
    """Decide about a program that neither ends nor makes progress. Nothing is decided unless the slice was seen. A host
    that may be lost is judged first: the others wait for it."""
    if not isinstance(seen.serving(job), Present):
        return None
    end = _silent(job, seen, reports)
    if end is None and not seen.silent:
        end = stall.left_behind(reports, job.hosts)
        end = end or stall.hung(job.spec.recovery.stall, reports)
    return _over(job, end, reports, now) if end else None


def _watched(job: Job, seen: Observation, now: float) -> Decision | None:
    """Store from time to time how long some hosts have not reported, so that another backend continues from that."""
    fresh, stored = seen.watch, job.attempt.watch if job.attempt else None
    if fresh is None or (stored and fresh.at - stored.at < stall.WATCH_EVERY):
        return None
    quiet = [host.host for host in fresh.unanswered]
    ssh = f"; {_unanswered(quiet)}" if quiet else ""
    text = f"some hosts of attempt {number(job)} have not reported lately{ssh}"
    return Decision(event(job, _E.WATCHED, now, text, Watched(fresh)), wake_in=1)


def _unanswered(hosts: Sequence[int]) -> str:
    return f"{list_hosts(hosts)} {'do' if len(hosts) > 1 else 'does'} not answer over SSH"


def note_launched(job: Job, now: float) -> Event | None:
    """Return the event that all hosts have accepted a late start; None: no watch is stored, or it has that time. The
    next backend must not count the time before the start against the hosts."""
    watch = job.attempt.watch if job.attempt else None
    if watch is None or watch.launched is not None:
        return None
    text = f"all hosts of attempt {number(job)} took the start"
    return event(job, _E.WATCHED, now, text, Watched(replace(watch, launched=now)))


def _ignored(job: Job, seen: Observation, now: float) -> Decision | None:
    """Store a larger number of ignored reports: the first at once, then when it has doubled, or after PROGRESS_EVERY.
    Another process than the one that counted them may show the job."""
    fresh, stored = seen.ignored, job.attempt.ignored if job.attempt else None
    if fresh is None or (stored and fresh.total <= stored.total):
        return None
    if stored and fresh.total < 2 * stored.total and now - stored.at < PROGRESS_EVERY:
        return None
    text = f"{many(fresh.total, 'report')} of attempt {number(job)} ignored: not sent by its hosts"
    return Decision(event(job, _E.REPORTS_IGNORED, now, text, ReportsIgnored(fresh)), wake_in=1)


def _warned(job: Job, reports: Sequence[HostReport], now: float) -> Decision | None:
    """Store new warnings, or that earlier ones are over."""
    fresh = warnings.warnings_of(reports, job.spec.outputs)
    if job.attempt is None or not warnings.worth_storing(job.attempt.warnings, fresh):
        return None
    new = warnings.new_sentences(job.attempt.warnings, fresh)
    text = "; ".join(new) or "an earlier warning is over"
    return Decision(event(job, _E.WARNED, now, text, Warned(fresh)), wake_in=1)


def _in_touch(job: Job, seen: Observation, seconds: float = releasing.SECOND_LOOK) -> bool:
    """Return whether the hosts themselves are silent: the slice was seen, and reports were readable for `seconds`.
    After an outage of the storage every report is old, and hosts need time to write again."""
    return isinstance(seen.serving(job), Present) and seen.readable_for >= seconds
