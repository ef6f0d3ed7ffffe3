"""For how long a job will hold its slices: as somebody says, by the steps it makes, or as the same program took before.

Pure. What nobody knows is None: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Literal

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.money import ledger
from tpujob.domain.money.goodput import Part, spans
from tpujob.domain.money.ledger import HOUR
from tpujob.domain.money.pace import seconds_per_step
from tpujob.domain.text import duration, many

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec  # pydantic: only for who reads job files


@dataclass(frozen=True, slots=True)
class Length:
    """Hours for which slices are ready, and who says so."""

    hours: Decimal | None
    by: Literal["said", "steps", "history", "nobody"]
    text: str  #: for people: how it was found
    least: Decimal | None = None  #: of what was seen
    most: Decimal | None = None
    #: hours of steps that count, without set-up and losses; None: nobody knows
    work: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What the user said of it by name. None: nothing."""

    hours: Decimal | None = None
    steps: int | None = None
    step_seconds: Decimal | None = None


NOBODY = Length(
    None, "nobody", "nobody said how long it takes: --hours, or --steps and --step-seconds"
)


def length(spec: JobSpec, type: str, jobs: Iterable[Job], said: Said = Said()) -> Length:
    """For that spec on slices of that type: what was said by name counts first, then earlier runs of the same program
    on as many slices of the type, then its steps at the pace of earlier runs."""
    if said.hours is not None:
        return Length(said.hours, "said", "as said by --hours", work=said.hours)
    steps = said.steps if said.steps is not None else told_steps(spec)
    if said.step_seconds is not None and steps is not None:
        text = (
            f"{steps:,} steps of {said.step_seconds.normalize():f} s, without set-up and compiling"
        )
        hours = steps * said.step_seconds / 3600
        return Length(hours, "said", text, work=hours)
    alike = [job for job in jobs if _alike(job, spec, type)]
    return _whole(alike, spec, said) or _by_steps(alike, steps) or NOBODY


def told_steps(spec: JobSpec) -> int | None:
    """The steps that a bundled program was told to make."""
    given = spec.run.args.get("steps")
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None


def _alike(job: Job, spec: JobSpec, type: str) -> bool:
    """Whether it ran the same program on as many slices of the type; its arguments may differ."""
    run, other = job.spec.run, spec.run
    same = (run.workload, run.command) == (other.workload, other.command)
    wanted = accelerators.canonical(type)
    return same and job.tpu_slices == spec.tpu.slices and any(s.type == wanted for s in job.slices)


def _whole(alike: list[Job], spec: JobSpec, said: Said) -> Length | None:
    """The median of runs that succeeded with the same arguments."""
    if said.steps is not None:
        return None
    done = [
        job
        for job in alike
        if job.state is State.SUCCEEDED
        and job.spec.run.args == spec.run.args
        and all(one.gone_at is not None for one in job.slices)
    ]
    if not done:
        return None
    times = [sum(ledger.billed_time(one, 0.0) for one in job.slices) for job in done]
    hours = [Decimal(time) / HOUR for time in sorted(times)]
    text = f"as {many(len(times), 'earlier run')} of this program on this type took"
    work = Decimal(median(_productive(job) for job in done)) / HOUR
    return Length(Decimal(median(hours)), "history", text, hours[0], hours[-1], work)


def _productive(job: Job) -> int:
    """Microseconds of a job that has ended."""
    return sum(s.end - s.start for s in spans(job, 0.0) if s.part is Part.PRODUCTIVE)


def _by_steps(alike: list[Job], steps: int | None) -> Length | None:
    """The steps at the median pace of earlier attempts, with the median time around them."""
    if steps is None:
        return None
    attempts = [attempt for job in alike for attempt in job.attempts]
    paces = [found for a in attempts if (found := seconds_per_step(a)) is not None]
    if not paces:
        return None
    pace, around = median(paces), median(_around(alike) or [0.0])
    seconds = Decimal(str(round(steps * pace + around, 3)))
    text = (
        f"{steps:,} steps of {pace:.3g} s, as in {many(len(paces), 'earlier attempt')} on this type, "
        f"and {duration(around)} of set-up"
    )
    least, most = (
        Decimal(str(round(steps * edge(paces) + around, 3))) / 3600 for edge in (min, max)
    )
    work = Decimal(str(round(steps * pace, 3))) / 3600
    return Length(seconds / 3600, "steps", text, least, most, work)


def _around(alike: list[Job]) -> list[float]:
    """Seconds from a ready slice to the first step of its first attempt, of each slice that got so far."""
    return [
        found
        for job in alike
        for one in job.slices
        if (found := _until_first(job, one)) is not None
    ]


def _until_first(job: Job, one: Slice) -> float | None:
    seen = [a.first_step_at for a in job.attempts if a.slice == one.name and a.first_step_at]
    return None if one.ready_at is None or not seen else max(0.0, seen[0] - one.ready_at)
