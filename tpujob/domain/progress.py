"""What a job has: how far its program is, the checkpoint that it can go on from, and which of its steps count. Pure.

Records, pages, sentences, goodput and copies ask here. Nothing else derives these facts from the attempts of a job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.domain.model import Attempt, Cause, Job, Outcome, Progress

_NONFINITE = (Cause.BAD_HOST, Cause.NONFINITE)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Steps, loss and metrics are of the newest attempt; if that ended without a step, of the last one with a step."""

    step: int | None = None  #: the last one
    steps: int | None = None  #: where the program stops, when it says so
    loss: float | None = None
    phase: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    first_step: int | None = None  #: of the same attempt as `step`
    #: the newest of all attempts from which a resume may go on; None: none is known
    checkpoint: int | None = None
    resume_before: int = 0  #: only a checkpoint of an earlier step may be resumed from; 0: any
    saved: int | None = None  #: the newest that was committed, also at or after `resume_before`
    #: numbers of the attempt that saved `checkpoint` were not finite, since a step that is not known
    doubtful: bool = False


def job_progress(job: Job, live: Progress | None = None) -> JobProgress:
    """Return the progress of `job`. `live`: the progress of the running attempt, if it is newer than the record."""
    job = with_live(job, live)
    if job.attempt is None:
        return JobProgress()
    shown = job.attempt
    if shown.ended_at is not None:
        shown = next((a for a in reversed(job.attempts) if a.progress.step is not None), shown)
    done = shown.progress
    saved = [a.progress.checkpoint for a in job.attempts if a.progress.checkpoint is not None]
    checkpoint = _good_checkpoint(job.attempts)
    return JobProgress(
        step=done.step,
        steps=done.steps,
        loss=done.loss,
        phase=job.attempt.progress.phase,
        metrics=done.metrics,
        first_step=first_step(shown),
        checkpoint=checkpoint,
        resume_before=resume_before(job),
        saved=saved[-1] if saved else None,
        doubtful=checkpoint is not None and _doubtful(job.attempts, checkpoint),
    )


def with_live(job: Job, live: Progress | None) -> Job:
    """`job` with the progress of its running attempt replaced; unchanged if there is none or no attempt runs."""
    if live is None or job.attempt is None or job.attempt.ended_at is not None:
        return job
    return replace(job, attempts=(*job.attempts[:-1], replace(job.attempt, progress=live)))


def first_step(attempt: Attempt) -> int | None:
    """The first step that it made: by its hosts, else the one after that which it resumed from, else the first one that
    the backend saw. None: it made none, or none is known."""
    done = attempt.progress
    if done.first_step is None and done.step is not None and done.resumed_from is not None:
        return done.resumed_from + 1
    return attempt.first_step if done.first_step is None else done.first_step


def began_from(attempt: Attempt) -> int | None:
    """The step that it went on from, as its program says or as the first step shows that its hosts report; 0: the
    beginning. None: not known; the first step that the backend saw may be a later one."""
    if attempt.progress.resumed_from is not None or attempt.number == 1:
        return attempt.progress.resumed_from or 0
    first = attempt.progress.first_step
    return None if first is None else max(0, first - 1)


def resume_before(job: Job) -> int:
    """The step before which the next attempt must resume; 0: any. What was saved at or after a step that was not finite
    may hold wrong numbers: later attempts stay before it. Once an attempt has saved past that step, and its numbers are
    known to be good, its own checkpoints are good again."""
    return _resume_before(job.attempts)


def _resume_before(attempts: Sequence[Attempt]) -> int:
    bound = 0
    for attempt in attempts:
        bound = attempt.resume_before
        if bound and (attempt.progress.checkpoint or 0) >= bound and _sound(attempt, bound):
            bound = 0
        if attempt.verdict and attempt.verdict.step is not None and attempt.cause in _NONFINITE:
            bound = min(bound or attempt.verdict.step, attempt.verdict.step)
    return max(0, bound)


def _sound(attempt: Attempt, bound: int) -> bool:
    """Return whether the numbers that it saved past the bound are good. Those of an attempt that began before the bound
    are; one that did not stay before it, though it should, must report a finite loss past it."""
    began = began_from(attempt)
    if began is not None and began < bound:
        return True
    finite = began is None or attempt.progress.loss is not None  # a loss that is not finite is None
    return finite and attempt.cause not in _NONFINITE


def _good_checkpoint(attempts: Sequence[Attempt]) -> int | None:
    """The newest that a next attempt may resume from. An attempt that began earlier shows that later ones, of attempts
    before it, are not used."""
    known: list[int] = []
    for attempt in attempts:
        began, done = began_from(attempt), attempt.progress
        if began is not None:
            known = [step for step in known if step <= began]
        if done.resumed_from:
            known.append(done.resumed_from)
        if done.checkpoint is not None:
            known.append(done.checkpoint)
    bound = _resume_before(attempts)
    return max((step for step in known if not bound or step < bound), default=None)


def _doubtful(attempts: Sequence[Attempt], checkpoint: int) -> bool:
    """Whether the attempt that saved it ended with numbers that were not finite, and does not say since which step."""
    by = next((a for a in reversed(attempts) if a.progress.checkpoint == checkpoint), None)
    known = by and by.verdict and by.verdict.step is not None
    return by is not None and by.cause in _NONFINITE and not known


# Which steps count ---------------------------------------------------------------------------------------------------


def steps_kept(job: Job) -> dict[int, int | None]:
    """The step up to which an attempt's work counts, by its number: later attempts went on from there. None: not known.
    Attempts of which every step counts so far are left out: the one that runs, and one that succeeded."""
    found: dict[int, int | None] = {}
    resumed: int | None = None  #: the earliest step from which a later attempt went on
    for place in reversed(range(len(job.attempts))):
        attempt = job.attempts[place]
        stepped = attempt.progress.step is not None
        if stepped and resumed is not None:
            found[attempt.number] = resumed
        elif stepped and attempt.ended_at is not None and attempt.outcome is not Outcome.SUCCEEDED:
            found[attempt.number] = _good_checkpoint(job.attempts[: place + 1])
        first = began_from(attempt) if stepped else attempt.progress.resumed_from
        if first is not None:
            resumed = first if resumed is None else min(resumed, first)
    return found


def steps_made_again(job: Job, live: Progress) -> int:
    """Return how many steps of earlier attempts the running attempt repeats; 0 also where that is unknown."""
    reached = next((a.progress.step for a in reversed(job.attempts[:-1]) if a.progress.step), 0)
    running = with_live(job, live).attempt
    began = began_from(running) if running else None
    return max(0, reached - began) if began is not None else 0


def steps_redone(attempt: Attempt, kept: Mapping[int, int | None]) -> int | None:
    """Return how many of its steps do not count, with `kept` as `steps_kept` returns it. None: unknown."""
    made, began = attempt.progress.step, began_from(attempt)
    if made is None or attempt.number not in kept:
        return 0
    upto = kept[attempt.number]
    if upto is None or began is None:
        return None
    return max(0, made - max(upto, began))
