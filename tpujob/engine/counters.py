"""Counters of one process for `/metrics`. They begin at 0 with the process, as Prometheus expects.

Names follow Prometheus: base units, `_total` for counters. The values of labels come from closed lists: never a job's
id, a user or a zone. `service/backend/metrics.py` reads the other values at each scrape.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from tpujob.domain.failures.starts import OVERTAKEN
from tpujob.domain.model import Cause, Job

#: upper bounds of the buckets, in seconds: of what a process does by itself, and of a job that comes back
WORK = (0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0)
RECOVERY = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0)  # fmt: skip

disable_created_metrics()


class Counters:
    """Thread-safe."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"tpujob_{name}", help, labels, registry=registry)

        def times(name: str, help: str, *labels: str, bounds: Sequence[float] = WORK) -> Histogram:
            name = f"tpujob_{name}_seconds"
            return Histogram(name, help, labels, buckets=bounds, registry=registry)

        self.events = counter("events", "Events of jobs that this process has stored.", "kind")
        self.ends = counter("attempt_ends", "Attempts that have ended.", "outcome", "cause")
        self.actions = counter("actions", "Actions of ticks, by result.", "action", "outcome")
        self.leaks = counter(
            "leaked_slices",
            "Slices that no job claimed, by whether they could be deleted.",
            "outcome",
        )
        self.calls = counter(
            "cloud_calls",
            "Calls of the cloud's APIs, by result: transient ones are repeated.",
            *("service", "method", "outcome"),
        )
        self.requests = counter(
            "http_requests", "Requests that were answered.", "method", "route", "status"
        )
        self.recovery = times(
            "recovery",
            "From the end of an attempt to the next one running, by cause. Attempts that people stopped are left out.",
            "cause",
            bounds=RECOVERY,
        )
        self.wait = times(
            "queue_wait",
            "From a job's submission, resume or release to its first request, or to the slice of another job.",
            "band",
            bounds=RECOVERY,
        )
        self.tick = times("tick", "How long ticks took, by how they ended.", "outcome")
        self.commit = times("commit", "How long the store took to write a change of a job.")


def first_wait(before: Job, after: Job) -> float | None:
    """Return how long a job has waited, in seconds, that has just requested its first slice since its submission,
    resume or release; else None."""
    since = max(before.created_at, before.fresh_at, before.queued_at)
    if after.slice is None or any(slice.requested_at >= since for slice in before.slices):
        return None
    return max(0.0, after.slice.requested_at - since)


def recovered(before: Job, after: Job) -> tuple[Cause, float] | None:
    """If the newest attempt has just begun to run, return why the one before ended, and the seconds between. None also
    when a person or a limit had stopped the job: that time is not a recovery."""
    new = after.attempt
    if new is None or new.running_at is None or len(after.attempts) < 2:
        return None
    if before.attempt and before.attempt.number == new.number and before.attempt.running_at:
        return None
    old = after.attempts[-2]
    if old.cause in (None, *OVERTAKEN) or old.ended_at is None:
        return None
    return old.cause, max(0.0, new.running_at - old.ended_at)
