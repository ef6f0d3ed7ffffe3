"""Conditions on other jobs. Pure.

A job that has requested a slice waits for no other job any more, even if that one is repeated later.
"""

from dataclasses import dataclass
from enum import StrEnum

from tpujob.domain.model import Edge, Job, State


class Met(StrEnum):
    YES = "yes"
    NOT_YET = "not_yet"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The facts of a job that other jobs may wait for."""

    state: State
    started: float | None = None  #: when its program first ran; None: it did not
    finished_at: float | None = None
    is_group: bool = False


def facts_of(job: Job) -> JobEnd:
    started = min((a.running_at for a in job.attempts if a.running_at is not None), default=None)
    # nothing changes that any more
    if job.state is State.RELEASING and job.next_state is State.SUCCEEDED:
        return JobEnd(State.SUCCEEDED, started, job.state_since)
    return JobEnd(job.state, started, job.finished_at, job.spec.is_group)


def check_edge(edge: Edge, other: JobEnd | None) -> tuple[Met, float]:
    """Return whether the condition is met, and since when. `other`: None: its record was removed."""
    if other is None:
        return Met.NEVER, 0.0
    at = other.finished_at or 0.0
    if edge.on == "start":
        if other.started is not None:
            return Met.YES, other.started
        return (Met.NEVER if other.state.final else Met.NOT_YET), 0.0
    if not other.state.final:
        return Met.NOT_YET, 0.0
    succeeded = other.state is State.SUCCEEDED
    met = edge.on == "end" or succeeded == (edge.on == "success")
    return (Met.YES if met else Met.NEVER), at
