"""How long requests for slices have waited at each place, from those that became slices. Pure."""

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import nlargest
from math import ceil

from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.model import Job, Slice
from tpujob.domain.observations import UsualWait

#: number of the newest waits at a place that count, and the least number that says anything
NEWEST, LEAST = 20, 5

#: a stockout's key by `circuits.key`, and the number of TPU slices
PlaceKey = tuple[str, int]


def place_of(target: Offer | Slice) -> PlaceKey:
    return circuits.names(target)[0], target.tpu_slices


@dataclass(slots=True)
class PastWaits:
    """The waits of all jobs, by place."""

    #: when each slice was ready, and for how long it was waited for; by the job and the slice's number
    _waits: defaultdict[PlaceKey, dict[tuple[str, int], tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(dict[tuple[str, int], tuple[float, float]])
    )

    def count(self, job: Job) -> None:
        """Count the slices of a job, each once. A slice that another job gave was not waited for."""
        for slice in job.slices:
            if slice.ready_at is not None and not slice.received_from:
                seconds = max(0.0, slice.ready_at - slice.requested_at)
                self._waits[place_of(slice)][job.id, slice.k] = slice.ready_at, seconds

    def usual(self, place: PlaceKey) -> UsualWait | None:
        """Return the usual wait at a place; None: too few are known."""
        newest = sorted(seconds for _, seconds in nlargest(NEWEST, self._waits[place].values()))
        if len(newest) < LEAST:
            return None
        return UsualWait(newest[len(newest) // 2], newest[ceil(0.9 * len(newest)) - 1])
