"""How fast a program makes its steps, and how long it takes for those that are left. Pure.

What the program reports itself, as its metric `steps_per_second`, is believed; else its steps are counted as they were
seen to go.
"""

from math import isfinite

from tpujob.domain.model import Attempt
from tpujob.domain.progress import JobProgress, began_from

#: the metric by which a program says its own speed, for the whole job and not for each host
SPEED_METRIC = "steps_per_second"


def seconds_per_step(attempt: Attempt) -> float | None:
    """From the first step that was seen to the end; None: too few steps were reported."""
    until = attempt.progress_at if attempt.ended_at is None else attempt.ended_at
    return None if until is None else _counted(attempt, attempt.progress.step, until)


def first_step_began(attempt: Attempt, seconds: float | None) -> float | None:
    """When its first step began, at so many seconds a step: when a step is first seen, some are made already. At the
    earliest when the program ran. None: no step was seen while it ran."""
    if attempt.first_step_at is None:
        return None
    made = max(0, (attempt.first_step or 0) - (began_from(attempt) or 0))
    at = attempt.first_step_at - made * (seconds or 0.0)
    return max(at, attempt.started_at if attempt.running_at is None else attempt.running_at)


def steps_per_second(attempt: Attempt, done: JobProgress, moved_at: float | None) -> float | None:
    """Return the speed of a running attempt that is as far as `done`, since `moved_at`. None: unknown."""
    reported = done.metrics.get(SPEED_METRIC)
    if reported is not None and isfinite(reported) and reported > 0:
        return reported
    seen = None if moved_at is None else _counted(attempt, done.step, moved_at)
    each = seen or seconds_per_step(attempt)
    return 1 / each if each else None


def seconds_left(done: JobProgress, steps_per_s: float | None) -> float | None:
    """Until its last step, at that speed; None: one of them is unknown."""
    if done.step is None or not done.steps or not steps_per_s:
        return None
    return max(0, done.steps - done.step) / steps_per_s


def _counted(attempt: Attempt, made: int | None, until: float) -> float | None:
    first = attempt.first_step
    if made is None or first is None or attempt.first_step_at is None:
        return None
    time = until - (attempt.idle or 0.0) - attempt.first_step_at
    return time / (made - first) if made > first and time > 0 else None
