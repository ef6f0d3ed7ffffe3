"""What is decided and done: an event to store, an action upon the world, and what came of it. Data only."""

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
    """Request the job's serving slice. Safe to repeat: an existing one of ours is adopted."""


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    name: str
    even_suspending: bool = False  #: the cloud has been suspending it for too long to wait for


@dataclass(frozen=True, slots=True)
class HandOn:
    """Make sure that no program runs on the job's slice, and wipe its hosts; then another job has it."""

    name: str
    to: str  #: id of that job


@dataclass(frozen=True, slots=True)
class StartProgram:
    """Make every host of the serving slice look like the newest attempt."""


@dataclass(frozen=True, slots=True)
class StopProgram:
    """Stop the program on every host of a slice; the devices are free afterwards."""

    name: str = ""  #: of a condemned slice; empty: the serving one


@dataclass(frozen=True, slots=True)
class CleanJob:
    """Remove what the bucket holds of the job (not its checkpoints, unless asked), then its record."""


@dataclass(frozen=True, slots=True)
class MakeElements:
    """Store the next elements of a group. Safe to repeat: those that were stored already are taken."""

    first: int
    count: int  #: at most


@dataclass(frozen=True, slots=True)
class ResumeElements:
    """Resume the elements of a group that had ended before the group was resumed."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What one host is to run (`domain/host/plan.py` writes it)."""

    host: int
    document: Plan
    #: variables of set-up and the program that the host gets over SSH, and that are written nowhere
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    #: with which the host signs its reports, and what it leaves for later hosts; sent as the secrets are
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
    """A copy has come this far."""

    progress: CopyProgress


@dataclass(frozen=True, slots=True)
class Made:
    """So many elements were made."""

    count: int


@dataclass(frozen=True, slots=True)
class NotYet:
    """An action did not take effect, or its effect is not known; it is repeated."""

    error: str


@dataclass(frozen=True, slots=True)
class Denied:
    """A remote service refused an action."""

    cause: Cause
    error: str
    scope: Scope = ""


Result = Done | Copied | Made | NotYet | Denied


class Needs(StrEnum):
    """What an observation lacks for a decision."""

    FRESH = "fresh"  #: slices as the cloud shows each of them now, not as a list showed them
    EVIDENCE = "evidence"  #: the lines that failed hosts kept of their end


@dataclass(frozen=True, slots=True)
class Decision:
    """At most one event and one action. The event is stored before the action is done."""

    event: Event | None = None
    action: Action | None = None
    wake_in: float = 10.0  #: seconds until the next look
    #: to be observed first: then there is no event and no action, and the same is decided again
    needs: Needs | None = None


def soon(job: Job, now: float) -> float:
    """Return the seconds until the next poll, from 1 for a new request to 30 for an old one."""
    return max(1.0, min(30.0, (now - job.state_since) / 8))
