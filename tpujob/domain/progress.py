"""The progress of a job: its step, the checkpoint to resume from, and the steps that count. Pure.

Only this module derives these facts from the attempts of a job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.domain.model import Attempt, Cause, Job, NonfiniteLoss, Outcome, Progress
from tpujob.domain.observations import HostReport
from tpujob.protocol.limits import MAX_CHECKPOINTS

_NONFINITE = (Cause.BAD_HOST, Cause.NONFINITE)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job. Step, loss and metrics are of the newest attempt; if it ended without a step, of the
    last one with a step."""

    step: int | None = None  #: last step
    steps: int | None = None  #: last step of the whole training, if the program reports it
    loss: float | None = None  #: None also where it is not finite
    nonfinite: NonfiniteLoss | None = None
    phase: str = ""
    #: None: not finite
    metrics: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    first_step: int | None = None  #: of the same attempt as `step`
    #: step of the newest checkpoint that an attempt may resume from; None: none is known
    checkpoint: int | None = None
    resume_before: int = 0  #: only a checkpoint before this step may be resumed from; 0: any
    saved: int | None = None  #: step of the newest committed checkpoint, also after `resume_before`
    #: the attempt that saved `checkpoint` had numbers that were not finite, from an unknown step on
    doubtful: bool = False
    #: a newer checkpoint, which only some hosts of the newest attempt have
    partial: int | None = None
    found: bool = False  #: step, steps, loss and metrics were found; the program reports none
    #: mean seconds of a step that was found: it is shown, and decides nothing
    found_step_s: float | None = None


def job_progress(job: Job, live: Progress | None = None) -> JobProgress:
    """Return the progress of `job`. `live`: the progress of the running attempt, if it is newer than the record."""
    job = with_live(job, live)
    if job.attempt is None:
        return JobProgress()
    shown = job.attempt
    if shown.ended_at is not None:
        shown = next((a for a in reversed(job.attempts) if _seen(a.progress)), shown)
    done = _with_found(shown.progress)
    saved = [a.progress.checkpoint for a in job.attempts if a.progress.checkpoint is not None]
    checkpoint = _good_checkpoint(job.attempts)
    return JobProgress(
        step=done.step,
        steps=done.steps,
        loss=None if done.nonfinite else done.loss,
        nonfinite=done.nonfinite,
        phase=job.attempt.progress.phase,
        metrics=done.metrics,
        first_step=first_step(shown),
        checkpoint=checkpoint,
        resume_before=resume_before(job),
        saved=saved[-1] if saved else None,
        doubtful=checkpoint is not None and _doubtful(job.attempts, checkpoint),
        partial=_partial(job.attempt, checkpoint),
        found=done is not shown.progress,
        found_step_s=done.found.step_s if done.found and done is not shown.progress else None,
    )


def _seen(progress: Progress) -> bool:
    return progress.step is not None or progress.found is not None


def _with_found(progress: Progress) -> Progress:
    """Return the progress with what was found in the output, of a program that reports no steps."""
    found = progress.found
    if progress.step is not None or found is None:
        return progress
    nonfinite = NonfiniteLoss(found.nonfinite) if found.nonfinite else progress.nonfinite
    metrics = {**found.metrics, **progress.metrics}
    return replace(
        progress,
        step=found.step,
        steps=found.steps,
        loss=found.loss,
        nonfinite=nonfinite,
        metrics=metrics,
    )


def common_checkpoint(reports: Sequence[HostReport], before: int | None = None) -> int | None:
    """Return the newest checkpoint that every host has which saves; with `before`, the newest before that step, if
    there is one. None: there is none. A host that reports no checkpoint does not save."""
    savers = [r for r in reports if r.progress.checkpoint is not None]
    steps = [{*r.checkpoints, r.progress.checkpoint or 0} for r in savers]
    sound = [{step for step in own if before is not None and step < before} for own in steps]
    # a host may have reported more than its newest report has
    cut = any(len(r.checkpoints) in (0, MAX_CHECKPOINTS) for r in savers)
    for known in (sound, steps) if savers else ():
        first, *others = known
        if common := first.intersection(*others):
            return max(common)
        if cut and all(known):
            return min(map(max, known))
    return None


def with_live(job: Job, live: Progress | None) -> Job:
    """Return `job` with the progress of its running attempt replaced by `live`, if an attempt runs."""
    if live is None or job.attempt is None or job.attempt.ended_at is not None:
        return job
    return replace(job, attempts=(*job.attempts[:-1], replace(job.attempt, progress=live)))


def first_step(attempt: Attempt) -> int | None:
    """Return the first step of the attempt: as its hosts report, else the step after the one that it resumed from, else
    the first one that the backend saw. None: no step, or unknown."""
    done = attempt.progress
    if done.first_step is None and done.step is not None and done.resumed_from is not None:
        return done.resumed_from + 1
    return attempt.first_step if done.first_step is None else done.first_step


def good_step(done: Progress) -> int | None:
    """Return the last step before the loss became not finite: later steps do not count. None: no step, or unknown."""
    since = done.nonfinite.since if done.nonfinite else None
    return done.step if since is None or done.step is None else min(done.step, since - 1)


def began_from(attempt: Attempt) -> int | None:
    """Return the step that the attempt resumed from, as its program reports or as its hosts' first step shows; 0: the
    beginning. None: unknown, as the first step that the backend saw may be a later one."""
    if attempt.progress.resumed_from is not None or attempt.number == 1:
        return attempt.progress.resumed_from or 0
    first = attempt.progress.first_step
    return None if first is None else max(0, first - 1)


def origin(of_host: Progress) -> int | None:
    """Return the step that a host resumed from; 0: the beginning. None: unknown."""
    if of_host.resumed_from is None and of_host.first_step in (0, 1):
        return 0
    return of_host.resumed_from


def resume_before(job: Job) -> int:
    """Return the step before which the next attempt must resume; 0: any. A checkpoint at or after a step that was not
    finite may hold wrong numbers, so later attempts resume before it. The bound is lifted once an attempt with good
    numbers has saved past that step."""
    return _resume_before(job.attempts)


def _resume_before(attempts: Sequence[Attempt]) -> int:
    bound = 0
    for attempt in attempts:
        bound = attempt.resume_before
        if bound and (attempt.progress.checkpoint or 0) >= bound and _sound(attempt, bound):
            bound = 0
        verdict = attempt.verdict if attempt.cause in _NONFINITE else None
        bad = (
            verdict and verdict.step,
            attempt.progress.nonfinite and attempt.progress.nonfinite.since,
        )
        first = min((max(1, step) for step in bad if step is not None), default=0)
        bound = min(filter(None, (bound, first)), default=0)
    return bound


def _sound(attempt: Attempt, bound: int) -> bool:
    """Return whether the numbers that the attempt saved past the bound are good: it began before the bound, or, if it
    wrongly began later, reports a finite loss."""
    began = began_from(attempt)
    if began is not None and began < bound:
        return True
    finite = began is None or attempt.progress.loss is not None  # a loss that is not finite is None
    return finite and attempt.cause not in _NONFINITE


def _good_checkpoint(attempts: Sequence[Attempt]) -> int | None:
    """Return the step of the newest checkpoint that the next attempt may resume from. An attempt that began earlier
    shows that later checkpoints of the attempts before it are not used."""
    steps: list[int] = []
    for attempt in attempts:
        began, done = began_from(attempt), attempt.progress
        if began is not None:
            steps = [step for step in steps if step <= began]
        if done.resumed_from:
            steps.append(done.resumed_from)
        if done.checkpoint is not None:
            steps.append(done.checkpoint)
    bound = _resume_before(attempts)
    return max((step for step in steps if not bound or step < bound), default=None)


def _doubtful(attempts: Sequence[Attempt], checkpoint: int) -> bool:
    """Return whether the attempt that saved the checkpoint had numbers that were not finite from an unknown step on."""
    by = next((a for a in reversed(attempts) if a.progress.checkpoint == checkpoint), None)
    has_step = by and by.verdict and by.verdict.step is not None
    return by is not None and by.cause in _NONFINITE and not has_step


def _partial(attempt: Attempt, checkpoint: int | None) -> int | None:
    """Return the newest checkpoint that only some hosts of an ended attempt have. While it runs, their reports are of
    different times."""
    step = attempt.progress.partial_checkpoint
    if step is None or attempt.ended_at is None or _resume_before((attempt,)):
        return None
    return step if step > (checkpoint or 0) else None


# Which steps count ---------------------------------------------------------------------------------------------------


def steps_kept(job: Job) -> dict[int, int | None]:
    """Return the step up to which each attempt's work counts, by its number: where a later attempt resumed. None:
    unknown. Attempts whose steps all count are left out: the running one, and one that succeeded."""
    kept_steps: dict[int, int | None] = {}
    resumed: int | None = None  #: the earliest step at which a later attempt resumed
    for place in reversed(range(len(job.attempts))):
        attempt = job.attempts[place]
        stepped = attempt.progress.step is not None
        if stepped and resumed is not None:
            kept_steps[attempt.number] = resumed
        elif stepped and attempt.ended_at is not None and attempt.outcome is not Outcome.SUCCEEDED:
            kept_steps[attempt.number] = _good_checkpoint(job.attempts[: place + 1])
        first = began_from(attempt) if stepped else attempt.progress.resumed_from
        if first is not None:
            resumed = first if resumed is None else min(resumed, first)
    return kept_steps


def steps_made_again(job: Job, live: Progress) -> int:
    """Return how many steps of earlier attempts the running attempt repeats; 0 also where that is unknown."""
    before = (good_step(a.progress) for a in reversed(job.attempts[:-1]))
    reached = next(filter(None, before), 0)
    running = with_live(job, live).attempt
    began = began_from(running) if running else None
    return max(0, reached - began) if began is not None else 0


def steps_redone(attempt: Attempt, kept: Mapping[int, int | None]) -> int | None:
    """Return how many of its steps were lost, with `kept` as `steps_kept` returns it. None: unknown."""
    made, began = good_step(attempt.progress), began_from(attempt)
    if made is None or attempt.number not in kept:
        return 0
    upto = kept[attempt.number]
    if upto is None or began is None:
        return None
    return max(0, made - max(upto, began))
