"""What a look at the world says about one job, in the terms in which decisions ask for it. Pure."""

from __future__ import annotations

from typing import Any

from tpujob.domain.model import Job, Slice
from tpujob.domain.observations import Absent, Present, Report, Seen, SliceSeen, Unknown


def look_at(one: Slice, seen: Seen) -> SliceSeen:
    return seen.slices.get(one.name, Unknown("not looked at"))


def serving(job: Job, seen: Seen) -> SliceSeen:
    return look_at(job.slice, seen) if job.slice else Absent()


def reports_of(seen: Seen) -> tuple[Report, ...]:
    return () if isinstance(seen.reports, Unknown) else seen.reports


def endpoints_of(seen: SliceSeen) -> list[list[Any]]:
    assert isinstance(seen, Present)
    return [[e.host, e.internal_ip, e.external_ip] for e in seen.endpoints]


def host_count(job: Job) -> int:
    return len(job.slice.endpoints) if job.slice else 0


def soon(job: Job, now: float) -> float:
    """Young requests are looked at often, old ones rarely: from 1 to 30 seconds."""
    return max(1.0, min(30.0, (now - job.state_since) / 8))
