"""Which slices a grant pays for. A grant covers one generation, zone and pricing, up to a number of chips at a time.

Whatever else is used is billed: another zone, type or pricing, chips beyond the grant; disks, storage and traffic
always. Pure. The grants of a job are those of its context at its submission, so a later change rewrites no history.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Grant, Job, Slice

#: job and slice, by name
Key = tuple[str, str]
#: generation, zone and pricing, which a grant names
Where = tuple[str, str, str]


def where(type: str, zone: str, pricing: str) -> Where:
    return accelerators.find(type).generation, zone, pricing


def granted(grants: Iterable[Grant], there: Where) -> int:
    """Chips that these grants have there."""
    return sum(g.chips for g in grants if (g.generation, g.zone, g.pricing) == there)


def chips(slice: Slice) -> int:
    return accelerators.find(slice.type).chips * slice.tpu_slices


class Granted(Protocol):
    """What of a job says which of its slices a grant pays for."""

    @property
    def id(self) -> str: ...
    @property
    def grants(self) -> tuple[Grant, ...]: ...
    @property
    def slices(self) -> tuple[Slice, ...]: ...


def covered(jobs: Iterable[Granted]) -> frozenset[Key]:
    """The slices that a grant pays for. In the order in which they became ready: a slice is covered whole, for as long
    as it lives, if it fits beside those that are covered already. One that comes later takes nothing from it."""
    asking: dict[Where, list[tuple[float, str, str, Slice, int]]] = defaultdict(list)
    for job in jobs:
        for one in job.slices if job.grants else ():
            there = where(one.type, one.zone, one.pricing)
            most = granted(job.grants, there)
            if most and one.ready_at is not None:
                asking[there].append((one.ready_at, job.id, one.name, one, most))
    return frozenset(key for these in asking.values() for key in _fitting(these))


def in_use(jobs: Sequence[Job]) -> Counter[Where]:
    """Chips of slices that are there and that a grant pays for."""
    paid, found = covered(jobs), Counter[Where]()
    for job in jobs:
        for one in job.slices:
            if one.gone_at is None and (job.id, one.name) in paid:
                found[where(one.type, one.zone, one.pricing)] += chips(one)
    return found


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
