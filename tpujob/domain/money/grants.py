"""Which slices a grant pays for. A grant covers one generation, zone and pricing, up to a number of chips at a time.

Whatever else is used is billed: another zone, type or pricing, chips beyond the grant; disks, storage and traffic
always. Pure. The grants of a job are those of its context at its submission, so a later change rewrites no history.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice

#: job and slice, by name
Key = tuple[str, str]


def chips(slice: Slice) -> int:
    return accelerators.find(slice.type).chips * slice.tpu_slices


def covered(jobs: Iterable[Job]) -> frozenset[Key]:
    """The slices that a grant pays for. In the order in which they became ready: a slice is covered whole, for as long
    as it lives, if it fits beside those that are covered already. One that comes later takes nothing from it."""
    asking: dict[tuple[str, str, str], list[tuple[float, str, str, Slice, int]]] = defaultdict(list)
    for job in jobs:
        for one in job.slices if job.grants else ():
            granted = _granted(job, one)
            if granted and one.ready_at is not None:
                place = (accelerators.find(one.type).generation, one.zone, one.pricing)
                asking[place].append((one.ready_at, job.id, one.name, one, granted))
    return frozenset(key for these in asking.values() for key in _fitting(these))


def in_use(jobs: Iterable[Job], type: str, zone: str, pricing: str) -> int:
    """Chips of slices of that generation, zone and pricing that are there and that a grant pays for."""
    known = list(jobs)
    paid, generation = covered(known), accelerators.find(type).generation
    return sum(
        chips(one)
        for job in known
        for one in job.slices
        if (job.id, one.name) in paid
        and one.gone_at is None
        and (accelerators.find(one.type).generation, one.zone, one.pricing)
        == (generation, zone, pricing)
    )


def _granted(job: Job, one: Slice) -> int:
    """Chips that its job's grants have for such a slice."""
    generation = accelerators.find(one.type).generation
    place = (generation, one.zone, one.pricing)
    return sum(g.chips for g in job.grants if (g.generation, g.zone, g.pricing) == place)


def _fitting(asking: list[tuple[float, str, str, Slice, int]]) -> list[Key]:
    found: list[Key] = []
    living: list[tuple[float, int]] = []  #: end and chips of each that is covered
    used = 0
    for ready_at, job_id, name, one, granted in sorted(asking, key=lambda each: each[:3]):
        while living and living[0][0] <= ready_at:
            used -= heapq.heappop(living)[1]
        if used + chips(one) <= granted:
            used += chips(one)
            heapq.heappush(living, (math.inf if one.gone_at is None else one.gone_at, chips(one)))
            found.append((job_id, name))
    return found
