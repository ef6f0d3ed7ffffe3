"""How long a job will hold its slices, and how fast its program is on a type: as stated, by its steps, or as earlier
jobs took. Pure. What is not known is None.

A job reports its steps; any other unit comes from a metric that it reports under the name `<unit>_per_second`, such as
`tokens_per_second`, for the whole job and not for each host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Attempt, Job, State
from tpujob.domain.money import ledger
from tpujob.domain.money.goodput import TimePart, spans
from tpujob.domain.money.ledger import HOUR
from tpujob.domain.money.pace import seconds_per_step
from tpujob.domain.money.samples import program_of
from tpujob.domain.text import duration, many

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec


@dataclass(frozen=True, slots=True)
class RunTime:
    """Hours for which slices are ready, and who says so."""

    hours: Decimal | None
    by: Literal["said", "steps", "history", "nobody"]
    text: str  #: for people: how it was found
    least: Decimal | None = None  #: of what was seen
    most: Decimal | None = None
    #: hours of steps that count, without set-up and losses; None: unknown
    work: Decimal | None = None


@dataclass(frozen=True, slots=True)
class StatedWork:
    """What the user stated by name. None: nothing."""

    hours: Decimal | None = None
    steps: int | None = None
    step_seconds: Decimal | None = None


UNKNOWN = RunTime(
    None, "nobody", "the run time is not stated: --hours, or --steps and --step-seconds"
)


def estimate_run_time(
    spec: JobSpec, type: str, jobs: Iterable[Job], stated: StatedWork = StatedWork()
) -> RunTime:
    """For that spec on slices of that type: what was stated by name counts first, then earlier runs of the same program
    on as many slices of the type, then its steps at the pace of earlier runs."""
    if stated.hours is not None:
        return RunTime(stated.hours, "said", "as stated by --hours", work=stated.hours)
    steps = stated.steps if stated.steps is not None else steps_of_spec(spec)
    if stated.step_seconds is not None and steps is not None:
        text = f"{steps:,} steps of {stated.step_seconds.normalize():f} s, without set-up and compiling"
        hours = steps * stated.step_seconds / 3600
        return RunTime(hours, "said", text, work=hours)
    alike = [job for job in jobs if _alike(job, spec, type)]
    return _whole(alike, spec, stated) or _by_steps(alike, steps) or UNKNOWN


def steps_of_spec(spec: JobSpec) -> int | None:
    """The steps of a bundled program, by its arguments."""
    given = spec.run.args.get("steps")
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None


def _alike(job: Job, spec: JobSpec, type: str) -> bool:
    """Return whether it ran the same program on as many slices of the type; its arguments may differ."""
    run, other = job.spec.run, spec.run
    same = (run.workload, run.command) == (other.workload, other.command)
    wanted = accelerators.canonical(type)
    return same and job.tpu_slices == spec.tpu.slices and any(s.type == wanted for s in job.slices)


def _whole(alike: list[Job], spec: JobSpec, stated: StatedWork) -> RunTime | None:
    """The median of runs that succeeded with the same arguments."""
    if stated.steps is not None:
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
    productive = (
        sum(s.end - s.start for s in spans(job, 0.0) if s.part is TimePart.PRODUCTIVE)
        for job in done
    )
    work = Decimal(median(productive)) / HOUR
    return RunTime(Decimal(median(hours)), "history", text, hours[0], hours[-1], work)


def _by_steps(alike: list[Job], steps: int | None) -> RunTime | None:
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
    return RunTime(seconds / 3600, "steps", text, least, most, work)


def _around(alike: list[Job]) -> list[float]:
    """Seconds from a ready slice to the first step of its first attempt, of each slice that got so far."""
    found: list[float] = []
    for job in alike:
        for one in job.slices:
            seen = [
                a.first_step_at for a in job.attempts if a.slice == one.name and a.first_step_at
            ]
            if seen and one.ready_at is not None:
                found.append(max(0.0, seen[0] - one.ready_at))
    return found


Unit = Literal["steps", "tokens", "samples"]
Source = Literal["measured", "roofline", "stated"]

#: arguments of bundled programs that do not change how fast a step is made
_NO_MATTER = frozenset({"steps", "epochs", "seed", "lr", "checkpoint_every"})


class SliceKind(NamedTuple):
    type: str
    tpu_slices: int = 1


@dataclass(frozen=True, slots=True)
class Throughput:
    """Units a second of the whole job while its steps are made."""

    per_second: float
    unit: Unit
    source: Source
    jobs: int = 0  #: that were measured; the figure is their median


def measured(jobs: Iterable[Job], spec: JobSpec, unit: Unit) -> dict[SliceKind, Throughput]:
    """Of earlier jobs that ran the same program with the same arguments, those aside that do not matter for speed."""
    found: dict[SliceKind, list[float]] = {}
    wanted = _same(spec)
    for job in jobs:
        if _same(job.spec) != wanted:
            continue
        types = {one.name: one.type for one in job.slices}
        speeds: dict[SliceKind, list[float]] = {}
        for attempt in job.attempts:
            speed = _speed(attempt, unit)
            if speed is not None and attempt.slice in types:
                key = SliceKind(types[attempt.slice], job.tpu_slices)
                speeds.setdefault(key, []).append(speed)
        for key, those in speeds.items():
            found.setdefault(key, []).append(median(those))
    return {
        key: Throughput(median(those), unit, "measured", len(those)) for key, those in found.items()
    }


def _same(spec: JobSpec) -> tuple[str, Mapping[str, Any]]:
    args = {name: value for name, value in spec.run.args.items() if name not in _NO_MATTER}
    return program_of(spec), args


def _speed(attempt: Attempt, unit: Unit) -> float | None:
    """None: too few steps were reported."""
    if unit == "steps":
        step = seconds_per_step(attempt)
        return None if step is None else 1 / step
    stated = attempt.progress.metrics.get(f"{unit}_per_second")
    return stated if stated is not None and stated > 0 else None
