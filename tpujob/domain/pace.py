"""The speed of a program's steps, and the time of the steps that are left. Pure.

The metric `steps_per_second` of the program counts first; without it, the steps that the backend observed are counted.
"""

from tpujob.domain.model import Attempt
from tpujob.domain.progress import JobProgress, began_from

#: the metric by which a program reports its speed, for the whole job and not for each host
SPEED_METRIC = "steps_per_second"


def seconds_per_step(attempt: Attempt) -> float | None:
    """Return the mean seconds of a step since the first observed one; None: too few steps were reported."""
    until = attempt.progress_at if attempt.ended_at is None else attempt.ended_at
    return None if until is None else _counted(attempt, attempt.progress.step, until)


def first_step_began(attempt: Attempt, seconds: float | None) -> float | None:
    """Return when the first step began: when a step was first observed, minus `seconds` for each step made by then, but
    not before the program ran. None: no step was observed."""
    if attempt.first_step_at is None:
        return None
    made = max(0, (attempt.first_step or 0) - (began_from(attempt) or 0))
    at = attempt.first_step_at - made * (seconds or 0.0)
    return max(at, attempt.started_at if attempt.running_at is None else attempt.running_at)


def steps_per_second(attempt: Attempt, done: JobProgress, moved_at: float | None) -> float | None:
    """Return the speed of a running attempt whose newest step, in `done`, is of `moved_at`. None: unknown."""
    reported = None if done.found else done.metrics.get(SPEED_METRIC)
    if reported is not None and reported > 0:
        return reported
    counted = None if moved_at is None else _counted(attempt, done.step, moved_at)
    seconds = counted or seconds_per_step(attempt)
    return 1 / seconds if seconds else None


def seconds_left(done: JobProgress, steps_per_s: float | None) -> float | None:
    """Return the seconds until the last step, at that speed; None: unknown steps or speed."""
    if done.step is None or not done.steps or not steps_per_s:
        return None
    return max(0, done.steps - done.step) / steps_per_s


def _counted(attempt: Attempt, step: int | None, until: float) -> float | None:
    """Return the mean seconds of a step from the first observed one up to `step`, without idle time."""
    first = attempt.first_step
    if step is None or first is None or attempt.first_step_at is None:
        return None
    time = until - (attempt.idle or 0.0) - attempt.first_step_at
    return time / (step - first) if step > first and time > 0 else None
