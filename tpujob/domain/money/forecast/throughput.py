"""How fast a program goes on a type of slice: as earlier jobs did, as stated, or as a compile check found. Pure.

A job tells its steps; any other unit comes from a metric that it reports under the name `<unit>_per_second`, such as
`tokens_per_second`, for the whole job and not for each host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tpujob.domain.model import Attempt, Job
from tpujob.domain.money.forecast.met import program_of
from tpujob.domain.money.pace import seconds_per_step

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec  # pydantic: only for who reads job files

Unit = Literal["steps", "tokens", "samples"]
UNITS: tuple[Unit, ...] = get_args(Unit)
Source = Literal["measured", "roofline", "stated"]

#: arguments of bundled programs that do not change how fast a step is made
_NO_MATTER = frozenset({"steps", "epochs", "seed", "lr", "checkpoint_every"})


class Hardware(NamedTuple):
    type: str
    tpu_slices: int = 1


@dataclass(frozen=True, slots=True)
class Throughput:
    """Units a second of the whole job while its steps are made."""

    per_second: float
    unit: Unit
    source: Source
    jobs: int = 0  #: that were measured; the figure is their median


def measured(jobs: Iterable[Job], spec: JobSpec, unit: Unit) -> dict[Hardware, Throughput]:
    """Of earlier jobs that ran the same program with the same arguments, those aside that do not matter for speed."""
    found: dict[Hardware, list[float]] = {}
    wanted = _same(spec)
    for job in jobs:
        if _same(job.spec) != wanted:
            continue
        types = {one.name: one.type for one in job.slices}
        speeds: dict[Hardware, list[float]] = {}
        for attempt in job.attempts:
            speed = _speed(attempt, unit)
            if speed is not None and attempt.slice in types:
                key = Hardware(types[attempt.slice], job.tpu_slices)
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
    """None: it has told too little."""
    if unit == "steps":
        step = seconds_per_step(attempt)
        return None if step is None else 1 / step
    said = attempt.progress.metrics.get(f"{unit}_per_second")
    return said if said is not None and said > 0 else None
