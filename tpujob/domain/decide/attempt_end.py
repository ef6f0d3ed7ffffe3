"""The end of an attempt: whether another one follows, on which slice, and which retry budget it uses. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.decide import planned_end
from tpujob.domain.events import AttemptEnded, AttemptRepeated, Event, EventKind
from tpujob.domain.failures import accusations, nonfinite, retry, starts, warnings
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, End, Job, Progress, State
from tpujob.domain.observations import HostReport, Unknown
from tpujob.domain.progress import common_checkpoint, job_progress, origin
from tpujob.protocol import Phase

_E = EventKind


def end_attempt(job: Job, end: End, seen: Sequence[HostReport] | Unknown, now: float) -> Event:
    """Return the event that ends the newest attempt, with the job's next step. `seen`: the reports of its hosts."""
    reports = () if isinstance(seen, Unknown) else seen
    bad = end.verdict.step if end.verdict else None
    progress = best_progress(reports, bad) if reports else None
    began = ran_since(job, reports, now)
    end = replace(
        end,
        progress=progress,
        physical=machines(job, reports),
        running_at=began,
        started=starts.may_have_started(job, seen),
    )
    end = accusations.as_failure_of_program(job, planned_end.as_planned(job, end, reports, now))
    warned = ""
    if reports and job.attempt:
        stored, fresh = job.attempt.warnings, warnings.warnings_of(reports, job.spec.outputs)
        end = replace(end, warnings=replace(fresh, partly=fresh.partly or stored.partly))
        new = warnings.new_sentences(stored, fresh)
        warned = "".join(f"; {text}" for text in new)
    if end.cause is None:
        if progress and progress.nonfinite:
            good = nonfinite.newest_good(job_progress(job, progress).checkpoint)
            remark = f", but the {progress.nonfinite}; {good}"
            detail = end.detail and end.detail + remark
            end = replace(end, message=end.message + remark, detail=detail)
        text = f"attempt {number(job)} succeeded: {end.message}{warned}"
        return event(job, _E.ATTEMPT_ENDED, now, text, AttemptEnded(end, State.SUCCEEDED))
    ending = f"attempt {number(job)} ended, {end.cause}: {end.message}{warned}"
    follows = next_try(job, end, reports, now)
    if isinstance(follows, retry.GiveUp):
        text = f"{ending}; {follows.why}"
        return event(job, _E.ATTEMPT_ENDED, now, text, AttemptEnded(end, State.FAILED))
    retries = "1 more retry" if follows.left == 1 else f"{follows.left or 'no'} more retries"
    left = "" if follows.left is None else f" ({retries})"
    repeated = AttemptRepeated(end, follows.delay, follows.budget)
    slice_is_lost = any(r.notice for r in reports)
    if follows.same_slice and not slice_is_lost:
        text = f"{ending}; starting again on the same slice in {follows.delay:.0f} s{left}"
        return event(job, _E.ATTEMPT_RETRIED, now, text, repeated)
    if follows.bad_slice and not slice_is_lost and job.spec.recovery.on_bad_host == "swap":
        text = f"{ending}; {slice_name(job)} is kept until its replacement is ready{left}"
        if job.candidates and job.state is State.PREPARING:
            swapped = replace(repeated, delay=0.0, promoted=job.candidates[0].name)
            return event(job, _E.ATTEMPT_SWAPPED, now, text, swapped)
        return event(job, _E.ATTEMPT_CONDEMNED, now, text, repeated)
    ended = AttemptEnded(end, State.QUEUED, follows.budget)
    return event(job, _E.ATTEMPT_ENDED, now, f"{ending}{left}", ended)


def next_try(
    job: Job, end: End, reports: Sequence[HostReport], now: float
) -> retry.Again | retry.GiveUp:
    """Return what follows the end of the newest attempt."""
    assert end.cause is not None
    why = ""
    if end.cause is Cause.NONFINITE:
        why = nonfinite.is_maths(job, end.verdict, end.physical)
    elif end.cause is Cause.LOST_CONTACT:
        why = retry.kills_hosts(job, now)
    why = why or starts.why_no_more(job, end, reports, now)
    advanced = starts.has_advanced(job, end)
    choice = retry.GiveUp(why) if why else retry.after(job, end.cause, end.late, advanced)
    if end.cause is Cause.NONFINITE and not why and isinstance(choice, retry.GiveUp):
        return retry.GiveUp(f"{choice.why}; {nonfinite.evidence_text(job, end.verdict)}")
    return choice


def machines(job: Job, reports: Sequence[HostReport]) -> tuple[str, ...]:
    """Return the physical machine of each host, by host; empty when none is known."""
    reported = {r.host: r.physical for r in reports}
    by_host = tuple(reported.get(host, "") for host in range(job.hosts))
    return by_host if any(by_host) else ()


def best_progress(reports: Sequence[HostReport], bad_step: int | None = None) -> Progress:
    """Return one progress for all hosts: step and loss of the host that is furthest behind, phase and metrics of the
    first host, and the newest checkpoint that all have; with `bad_step`, or a loss that is not finite since some step,
    the newest one before that step, if there is one."""
    if not reports:
        return Progress()
    first = min(reports, key=lambda r: r.host).progress
    stepping = [r.progress for r in reports if r.progress.step is not None]
    behind = min(stepping, key=lambda p: p.step or 0, default=first)
    loss = nonfinite.reported_loss(reports)
    bad_step = loss.since if bad_step is None and loss else bad_step
    resumed = any(r.progress.resumed_from for r in reports)
    began = [step for r in reports if resumed and (step := origin(r.progress)) is not None]
    common = common_checkpoint(reports, bad_step)
    newest = max((r.progress.checkpoint or 0 for r in reports), default=0)
    return Progress(
        step=behind.step,
        steps=behind.steps,
        loss=behind.loss,
        nonfinite=loss,
        phase=first.phase,
        checkpoint=common,
        partial_checkpoint=newest if newest > (common or 0) and bad_step is None else None,
        resumed_from=min(began, default=first.resumed_from),
        first_step=min((p.first_step for p in stepping if p.first_step is not None), default=None),
        metrics=first.metrics,
        found=first.found if behind.step is None else None,
    )


def began_at(job: Job, reports: Sequence[HostReport], now: float) -> float | None:
    """Return when the program of the newest attempt was running on every host, by this clock; None if some host reports
    no start."""
    starts = _starts(reports, now)
    if not job.attempt or len(starts) < job.hosts:
        return None
    return min(now, max(job.attempt.started_at, *starts))


def ran_since(job: Job, reports: Sequence[HostReport], now: float) -> float | None:
    """Return when the program of the newest attempt, which ends now, began to run; None if that is stored already, or
    if it did not run. A step proves that it ran, also where some hosts have not reported their start."""
    stepped = any(r.progress.step is not None for r in reports)
    if job.attempt is None or job.attempt.running_at is not None:
        return None
    if not stepped:
        return began_at(job, reports, now)
    return min(now, max(job.attempt.started_at, *_starts(reports, now)))


def _starts(reports: Sequence[HostReport], now: float) -> list[float]:
    """Return the known start times of the program on the hosts, by this clock."""
    starts = [_start_time(r, now) for r in reports]
    return [start for start in starts if start is not None]


def _start_time(report: HostReport, now: float) -> float | None:
    """Return when the program was started on a host; `now` while it runs."""
    if report.phase == Phase.EXITED:
        return None if report.ran is None else now - report.age - report.ran
    return now if report.phase == Phase.RUNNING else None


def slice_name(job: Job) -> str:
    return job.slice.name if job.slice else "the slice"


def number(job: Job) -> int:
    return job.attempt.number if job.attempt else 0
