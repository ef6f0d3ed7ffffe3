"""Run time: how long a job will hold its slices, and how fast its program is on a type. Pure. None: unknown.

The sources are what the user states, the job's steps, and earlier jobs. A job reports its steps. Any other unit comes
from a metric `<unit>_per_second` of the job, such as `tokens_per_second`: for the whole job, not for each host.
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
from tpujob.domain.money.samples import history
from tpujob.domain.pace import seconds_per_step
from tpujob.domain.text import duration, many

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec


@dataclass(frozen=True, slots=True)
class RunTime:
    """The expected hours for which slices are ready, with their source."""

    hours: Decimal | None
    by: Literal["stated", "steps", "history", "unknown"]
    text: str  #: the source, in words
    least: Decimal | None = None  #: fewest hours, by earlier runs or by the fastest steps
    most: Decimal | None = None  #: most hours, by earlier runs or by the slowest steps
    work: Decimal | None = None  #: hours of steps that count, without set-up and losses


@dataclass(frozen=True, slots=True)
class StatedWork:
    """The work that the user states by options. None: not stated."""

    hours: Decimal | None = None
    steps: int | None = None
    step_seconds: Decimal | None = None


UNKNOWN = RunTime(
    None,
    "unknown",
    "the run time is not stated: `time:` in the job file, or `tpujob cost estimate` with --hours",
)


def estimate_run_time(
    spec: JobSpec, type: str, jobs: Iterable[Job], stated: StatedWork = StatedWork()
) -> RunTime:
    """Return the run time of the spec on slices of the type. Stated work counts first, then earlier runs of the same
    program on as many slices of the type, then the steps at their pace, then `time` of the job file."""
    if stated.hours is not None:
        return RunTime(stated.hours, "stated", "as stated by --hours", work=stated.hours)
    steps = stated.steps if stated.steps is not None else steps_of_spec(spec)
    if stated.step_seconds is not None and steps is not None:
        text = f"{steps:,} steps of {stated.step_seconds.normalize():f} s, without set-up and compiling"
        hours = steps * stated.step_seconds / 3600
        return RunTime(hours, "stated", text, work=hours)
    similar = [job for job in jobs if _is_similar(job, spec, type)]
    whole = _of_whole_runs(similar, spec) if stated.steps is None else None
    return whole or _by_steps(similar, steps) or _by_file(spec) or UNKNOWN


def _by_file(spec: JobSpec) -> RunTime | None:
    if spec.time is None:
        return None
    hours = _hours(spec.time)
    return RunTime(hours, "stated", "as stated by `time` in the job file", work=hours)


def steps_of_spec(spec: JobSpec) -> int | None:
    """Return the steps of a bundled program, by its arguments."""
    steps = spec.run.args.get("steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 else None


def _is_similar(job: Job, spec: JobSpec, type: str) -> bool:
    """Return whether the job ran the same program on as many slices of the type, perhaps with other arguments."""
    earlier, run = job.spec.run, spec.run
    if (earlier.workload, earlier.command) != (run.workload, run.command):
        return False
    name = accelerators.canonical(type)
    return job.tpu_slices == spec.tpu.slices and any(s.type == name for s in job.slices)


def _of_whole_runs(jobs: list[Job], spec: JobSpec) -> RunTime | None:
    """Return the median of jobs that succeeded with the same arguments."""
    done = [
        job
        for job in jobs
        if job.state is State.SUCCEEDED
        and job.spec.run.args == spec.run.args
        and all(s.gone_at is not None for s in job.slices)
    ]
    if not done:
        return None
    times = [sum((row.gone or 0) - row.ready for row in ledger.rows(job.slices)) for job in done]
    hours = [Decimal(time) / HOUR for time in sorted(times)]
    text = f"as {many(len(times), 'earlier run')} of this program on this type took"
    productive = (
        sum(s.end - s.start for s in spans(job, 0.0) if s.part is TimePart.PRODUCTIVE)
        for job in done
    )
    work = Decimal(median(productive)) / HOUR
    return RunTime(Decimal(median(hours)), "history", text, hours[0], hours[-1], work)


def _by_steps(jobs: list[Job], steps: int | None) -> RunTime | None:
    """Return the time of the steps at the median pace of earlier attempts, with their median set-up."""
    if steps is None:
        return None
    attempts = [attempt for job in jobs for attempt in job.attempts]
    paces = [pace for a in attempts if (pace := seconds_per_step(a)) is not None]
    if not paces:
        return None
    pace = median(paces)
    setups = [sample.setup for sample in history(jobs, now=0.0)]  # `now` ends only open ones
    setup = median([stay.seconds for stay in setups if stay and stay.ended] or [0.0])
    text = (
        f"{steps:,} steps of {pace:.3g} s, as in {many(len(paces), 'earlier attempt')} on this type, "
        f"and {duration(setup)} of set-up"
    )
    expected, least, most = (
        _hours(steps * seconds + setup) for seconds in (pace, min(paces), max(paces))
    )
    return RunTime(expected, "steps", text, least, most, work=_hours(steps * pace))


def _hours(seconds: float) -> Decimal:
    return Decimal(str(round(seconds, 3))) / 3600


Unit = Literal["steps", "tokens", "samples"]
Source = Literal["measured", "roofline", "stated"]

#: arguments of bundled programs that do not change the speed of a step
_NO_MATTER = frozenset({"steps", "epochs", "seed", "lr", "checkpoint_every"})


class SliceKind(NamedTuple):
    type: str
    tpu_slices: int = 1


@dataclass(frozen=True, slots=True)
class Throughput:
    """The speed of a whole job while it makes steps."""

    per_second: float  #: units of work
    source: Source
    jobs: int = 0  #: number of measured jobs; `per_second` is their median


def throughputs(jobs: Iterable[Job], spec: JobSpec, unit: Unit) -> dict[SliceKind, Throughput]:
    """Return the median speed of earlier jobs with the same program and arguments, for each kind of slice."""
    speeds_by_kind: dict[SliceKind, list[float]] = {}
    program = _program_and_args(spec)
    for job in jobs:
        if _program_and_args(job.spec) != program:
            continue
        types = {s.name: s.type for s in job.slices}
        speeds_of_job: dict[SliceKind, list[float]] = {}
        for attempt in job.attempts:
            speed = _speed(attempt, unit)
            if speed is not None and attempt.slice in types:
                kind = SliceKind(types[attempt.slice], job.tpu_slices)
                speeds_of_job.setdefault(kind, []).append(speed)
        for kind, speeds in speeds_of_job.items():
            speeds_by_kind.setdefault(kind, []).append(median(speeds))
    return {
        kind: Throughput(median(speeds), "measured", len(speeds))
        for kind, speeds in speeds_by_kind.items()
    }


def _program_and_args(spec: JobSpec) -> tuple[str, Mapping[str, Any]]:
    args = {name: value for name, value in spec.run.args.items() if name not in _NO_MATTER}
    return spec.run.program, args


def _speed(attempt: Attempt, unit: Unit) -> float | None:
    """Return the units a second of the attempt; None: unknown."""
    if unit == "steps":
        step = seconds_per_step(attempt)
        return None if step is None else 1 / step
    stated = attempt.progress.metrics.get(f"{unit}_per_second")
    return stated if stated is not None and stated > 0 else None
