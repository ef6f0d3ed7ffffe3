"""What one process counts of its own work, for `/metrics`. Lost with the process, as Prometheus expects.

Plain numbers under one lock: a count waits only for another count. What the names mean, and which labels they have, is
in `service/backend/families.py`. A label comes from a closed list: never a job's id, a user or a zone.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpujob.domain.model import Cause, Job

#: upper bounds of the buckets, in seconds: of what a process does by itself, and of a job that comes back
WORK = (0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0)
RECOVERY = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0)  # fmt: skip
Labels = tuple[str, ...]


@dataclass(slots=True)
class Times:
    """A histogram: how many were in each bucket, the last one without a bound, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list[int])
    seconds: float = 0.0

    def copy(self) -> Times:
        return Times(self.bounds, [*self.counts], self.seconds)


class Counters:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[Labels]] = {}
        self._times: dict[str, dict[Labels, Times]] = {}

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        with self._lock:
            self._counts.setdefault(name, Counter())[labels] += by

    def time(
        self, name: str, seconds: float, *labels: str, bounds: tuple[float, ...] = WORK
    ) -> None:
        """`bounds`: the same at each call of that name."""
        with self._lock:
            of_name = self._times.setdefault(name, {})
            times = of_name.get(labels)
            if times is None:
                times = of_name[labels] = Times(bounds, [0] * (len(bounds) + 1))
            times.counts[bisect_left(times.bounds, seconds)] += 1
            times.seconds += seconds

    def counts(self, name: str) -> Mapping[Labels, int]:
        with self._lock:
            return dict(self._counts.get(name, {}))

    def times(self, name: str) -> Mapping[Labels, Times]:
        with self._lock:
            return {labels: times.copy() for labels, times in self._times.get(name, {}).items()}


def first_wait(before: Job, after: Job) -> float | None:
    """The seconds for which a job waited that has just requested its first slice since it was submitted, resumed or
    released; None: it has not."""
    since = max(before.created_at, before.fresh_at, before.queued_at)
    if after.slice is None or any(one.requested_at >= since for one in before.slices):
        return None
    return max(0.0, after.slice.requested_at - since)


def recovered(before: Job, after: Job) -> tuple[Cause, float] | None:
    """Why the attempt before ended, and the seconds until the newest one ran, if that has just begun to. None also when
    a person or a budget had stopped the job: how long that lasts says nothing of recovery."""
    new = after.attempt
    if new is None or new.running_at is None or len(after.attempts) < 2:
        return None
    if before.attempt and before.attempt.number == new.number and before.attempt.running_at:
        return None
    old = after.attempts[-2]
    if old.cause in (None, Cause.CANCELLED, Cause.BUDGET) or old.ended_at is None:
        return None
    return old.cause, max(0.0, new.running_at - old.ended_at)
