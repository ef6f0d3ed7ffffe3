"""Decisions, the actions that they ask for, and the results of actions. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tpujob.domain.copies import CopyProgress
from tpujob.domain.events import Event
from tpujob.domain.model import Cause, Job
from tpujob.errors import Scope
from tpujob.protocol import Plan


@dataclass(frozen=True, slots=True)
class MakeCopy:
    """Continue the copy of this id for a while. Safe to repeat, also while another process makes it."""

    id: str


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Request a slice of the job. Safe to repeat: an existing one of ours is adopted."""

    name: str = ""  #: of a candidate; empty: the serving one


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    name: str
    even_suspending: bool = False  #: do not wait for the end of its suspension


@dataclass(frozen=True, slots=True)
class HandOn:
    """Stop every program on a slice of the job and wipe its hosts; then hand the slice on to another job."""

    name: str  #: of the serving slice, or of one that lost a race
    to: str  #: id of the other job


@dataclass(frozen=True, slots=True)
class StartProgram:
    """Start the newest attempt on every host of the serving slice. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class StopProgram:
    """Stop the program on every host of a slice. Once done, the devices are free."""

    name: str = ""  #: of a condemned slice; empty: the serving one


@dataclass(frozen=True, slots=True)
class CleanJob:
    """Remove the job's objects from the bucket (checkpoints only on request), then its record."""


@dataclass(frozen=True, slots=True)
class MakeElements:
    """Store the next elements of a group. Safe to repeat: stored elements are kept."""

    first: int
    count: int  #: at most


@dataclass(frozen=True, slots=True)
class ResumeElements:
    """Resume the elements of a group that had ended before the group was resumed."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The plan of one host with its secrets (`domain/host/plan.py` writes it)."""

    host: int
    document: Plan
    #: variables of set-up and program, sent over SSH and never stored
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    #: keys with which the host signs reports, and caches for later hosts; sent as the secrets are
    key: str = field(default="", repr=False)
    cache_key: str = field(default="", repr=False)


Action = (
    MakeCopy
    | CreateSlice
    | DeleteSlice
    | HandOn
    | StartProgram
    | StopProgram
    | CleanJob
    | MakeElements
    | ResumeElements
)


@dataclass(frozen=True, slots=True)
class Done:
    """An action took effect."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The progress of a copy after one step of it."""

    progress: CopyProgress


@dataclass(frozen=True, slots=True)
class Made:
    """Elements were stored."""

    count: int


@dataclass(frozen=True, slots=True)
class NotYet:
    """An action failed, or its effect is unknown; it is repeated."""

    error: str


@dataclass(frozen=True, slots=True)
class Denied:
    """A remote service refused an action."""

    cause: Cause
    error: str
    scope: Scope = ""
    limit: int | None = None  #: of the quota, in its own unit; None: unknown


Result = Done | Copied | Made | NotYet | Denied


class Needs(StrEnum):
    """The observation that a decision lacks."""

    FRESH = "fresh"  #: a poll of each slice by name, not a list of some seconds ago
    EVIDENCE = "evidence"  #: the last lines of failed hosts


@dataclass(frozen=True, slots=True)
class Decision:
    """At most one event and one action. The event is stored before the action is done."""

    event: Event | None = None
    action: Action | None = None
    wake_in: float = 10.0  #: seconds until the next tick
    #: to be observed before the same decision is made again; then there is no event and no action
    needs: Needs | None = None


def soon(job: Job, now: float) -> float:
    """Return the seconds until the next poll: from 1 in a new state to 30 in an old one."""
    return max(1.0, min(30.0, (now - job.state_since) / 8))
