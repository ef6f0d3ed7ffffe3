"""Which part of the peak of their chips the lab's own jobs reached (MFU), by generation, from their records. Pure.

Counted are programs that report operations as this project counts them: the bundled ones, by their metric `mfu`, and
MaxText, by the `tflops` of its lines, where the job file says `watch: maxtext`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Attempt, Job

#: jobs of a generation below which nothing is said of it
LEAST_JOBS = 3
#: steps of an attempt below which compiling and warming up may be in its figures
LEAST_STEPS = 100


class PeakPart(NamedTuple):
    """The part of the peak that jobs reached."""

    least: float
    most: float
    jobs: int


def reached(jobs: Iterable[Job]) -> dict[str, PeakPart]:
    """Return the least and the greatest part of the peak that jobs reached, by the name of a chip: `v5e`. A job counts
    by the median of its attempts; a generation with fewer than LEAST_JOBS is left out."""
    by_chip: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        parts: dict[str, list[float]] = defaultdict(list)
        for chip, part in _parts(job):
            parts[chip].append(part)
        for chip, values in parts.items():
            by_chip[chip].append(median(values))
    return {
        chip: PeakPart(min(values), max(values), len(values))
        for chip, values in by_chip.items()
        if len(values) >= LEAST_JOBS
    }


def _parts(job: Job) -> Iterator[tuple[str, float]]:
    """Yield the chip and the part of its peak of each attempt that reported it."""
    types = {slice.name: slice.type for slice in job.slices}
    for attempt in job.attempts:
        made = (attempt.progress.step or 0) - (attempt.first_step or 0)
        if attempt.slice not in types or attempt.first_step is None or made < LEAST_STEPS:
            continue
        chip = accelerators.find(types[attempt.slice]).chip
        part = _part(job, attempt, chip.tflops / chip.devices)
        if part is not None and 0 < part <= 1:
            yield chip.name, part


def _part(job: Job, attempt: Attempt, tflops_of_device: float) -> float | None:
    metrics = attempt.progress.metrics
    if job.spec.run.workload is not None:
        return metrics.get("mfu")
    tflops = metrics.get("tflops") if job.spec.watch.trainer == "maxtext" else None
    return None if tflops is None else tflops / tflops_of_device
