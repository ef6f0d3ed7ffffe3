"""What can happen to a job, and what each event carries. Data only: `lifecycle.py` folds an event into the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tpujob.domain.copies import CopyProgress, Saved
from tpujob.domain.model import (
    CLOUD_TPU,
    SCHEMA_VERSION,
    Cause,
    End,
    Endpoint,
    Ignored,
    Pricing,
    Progress,
    Slice,
    State,
    Watch,
)
from tpujob.errors import Scope


class EventKind(StrEnum):
    CREATED = "created"
    COPY_STARTED = "copy_started"  #: of data, or of a checkpoint, into the region of an offer
    COPY_ADVANCED = "copy_advanced"
    COPY_FINISHED = "copy_finished"
    COPY_REFUSED = "copy_refused"  #: its region is not asked for a slice any more
    SLICE_REQUESTED = "slice_requested"
    SLICE_WAITING = "slice_waiting"  #: the cloud keeps the request in its queue
    SLICE_CREATING = "slice_creating"  #: the request has left that queue
    SLICE_READY = "slice_ready"
    ATTEMPT_RUNNING = "attempt_running"
    PROGRESSED = "progressed"
    WATCHED = "watched"  #: there is no word of some hosts
    REPORTS_IGNORED = "reports_ignored"  #: others write where its hosts report
    SLICE_MISSING = "slice_missing"  #: absent at first sight; a second look decides
    SLICE_FOUND = "slice_found"
    ATTEMPT_ENDED = "attempt_ended"  #: and the slice is given back
    ATTEMPT_RETRIED = "attempt_retried"  #: it ended, and the next one starts on the same slice
    #: it ended, and its slice is kept until another is there
    ATTEMPT_CONDEMNED = "attempt_condemned"
    CONDEMNED_STOPPED = "condemned_stopped"
    HELD = "held"
    PROGRAM_STOPPED = "program_stopped"
    RELEASE_STARTED = "release_started"
    #: the cloud is suspending it; its deletion waits for that
    SLICE_SUSPENDING = "slice_suspending"
    DELETE_ASKED = "delete_asked"
    SLICE_GONE = "slice_gone"
    SLICE_HANDED_ON = "slice_handed_on"  #: another job has it now
    SLICE_KEPT = "slice_kept"  #: its program has ended; another job may get the slice
    SLICE_RECEIVED = "slice_received"  #: from another job, ready
    REQUEUED = "requeued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CANCEL_REQUESTED = "cancel_requested"
    RELEASE_REQUESTED = "release_requested"
    CLEAN_REQUESTED = "clean_requested"
    RESUME_REQUESTED = "resume_requested"
    RESUMED = "resumed"
    BUDGET_WARNED = "budget_warned"  #: 80 % of the money are used
    BUDGET_CHANGED = "budget_changed"
    QUEUE_HELD = "queue_held"  #: no slice is requested until it is released
    QUEUE_RELEASED = "queue_released"
    QUEUE_MOVED = "queue_moved"  #: before or behind other jobs of its owner
    #: its program is stopped, and it waits for a slice again
    REQUEUE_REQUESTED = "requeue_requested"
    GROUP_EXTENDED = "group_extended"  #: elements of an array or a sweep were made
    GROUP_REOPENED = "group_reopened"  #: it had ended, and one of its elements was resumed


@dataclass(frozen=True, slots=True)
class CopyStarted:
    """The fields mean what they mean in a `Copy`."""

    id: str
    name: str
    source: str
    target: str
    region: str
    micros_per_gib: int
    micros_per_object: int
    saved: Saved | None = None


@dataclass(frozen=True, slots=True)
class CopyMoved:
    """How far it has come, or that it is whole."""

    id: str
    progress: CopyProgress


@dataclass(frozen=True, slots=True)
class CopyRefused:
    id: str
    cause: Cause
    error: str


@dataclass(frozen=True, slots=True)
class SliceRequested:
    """The fields mean what they mean in a `Slice`."""

    name: str
    k: int
    type: str
    zone: str
    pricing: Pricing
    runtime_version: str
    usd_per_hour: float | None
    bucket: str = ""
    provider: str = CLOUD_TPU


@dataclass(frozen=True, slots=True)
class SliceReady:
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class SliceHandedOn:
    slice: str
    to: str  #: id of the job


@dataclass(frozen=True, slots=True)
class SliceReceived:
    slice: Slice  #: as it is in the record of the job that has it now
    giver: str  #: id of the job that had it


@dataclass(frozen=True, slots=True)
class AboutSlice:
    """The slice that was missed, found, stopped, suspended, asked to go or seen to be gone."""

    slice: str


@dataclass(frozen=True, slots=True)
class AttemptRunning:
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    running_at: float | None = None  #: since when; None: the event's own time


@dataclass(frozen=True, slots=True)
class Progressed:
    progress: Progress
    first: bool = False  #: no step of this attempt was seen before
    running_at: float | None = None  #: since when the program ran, if that was not known before


@dataclass(frozen=True, slots=True)
class Watched:
    watch: Watch


@dataclass(frozen=True, slots=True)
class ReportsIgnored:
    ignored: Ignored


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    end: End
    then: State  #: where the release of the slice leads
    budget: str = ""  #: the retry budget that is spent; empty: none


@dataclass(frozen=True, slots=True)
class AttemptRepeated:
    """The next attempt starts on the same slice, or on another while this one is condemned."""

    end: End
    delay: float  #: seconds until the next attempt, or until another slice is asked for
    budget: str


@dataclass(frozen=True, slots=True)
class SliceHeld:
    hold_until: float
    end: End | None  #: of the attempt; None: the slice was held before a program ran on it
    endpoints: tuple[Endpoint, ...] = ()  #: of a slice that has just become ready
    then: State | None = None  #: given back once the program is stopped, and where that leads


@dataclass(frozen=True, slots=True)
class SliceKept:
    until: float


@dataclass(frozen=True, slots=True)
class ReleaseStarted:
    then: State
    cause: Cause | None  #: None: its job is put back into the queue
    budget: str = ""
    refused: Cause | None = None  #: the request for the slice was refused for this cause
    scope: Scope = ""  #: where the refusal holds


@dataclass(frozen=True, slots=True)
class Requeued:
    delay: float  #: seconds until the next request


@dataclass(frozen=True, slots=True)
class Finished:
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class CleanRequested:
    checkpoints: bool  #: they are removed, too


@dataclass(frozen=True, slots=True)
class BudgetWarned:
    """In micro-dollars."""

    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class BudgetChanged:
    limit: int  #: micro-dollars


@dataclass(frozen=True, slots=True)
class QueueMoved:
    rank: int


@dataclass(frozen=True, slots=True)
class GroupExtended:
    made: int  #: elements that there are now


Payload = (
    CopyStarted
    | CopyMoved
    | CopyRefused
    | SliceRequested
    | SliceReady
    | SliceHandedOn
    | SliceReceived
    | AboutSlice
    | AttemptRunning
    | Progressed
    | Watched
    | ReportsIgnored
    | AttemptEnded
    | AttemptRepeated
    | SliceHeld
    | SliceKept
    | ReleaseStarted
    | Requeued
    | Finished
    | CleanRequested
    | BudgetWarned
    | BudgetChanged
    | QueueMoved
    | GroupExtended
)

#: by kind; an event of any other kind carries nothing
PAYLOADS: Mapping[EventKind, type[Payload]] = {
    EventKind.COPY_STARTED: CopyStarted,
    EventKind.COPY_ADVANCED: CopyMoved,
    EventKind.COPY_FINISHED: CopyMoved,
    EventKind.COPY_REFUSED: CopyRefused,
    EventKind.SLICE_REQUESTED: SliceRequested,
    EventKind.SLICE_READY: SliceReady,
    EventKind.ATTEMPT_RUNNING: AttemptRunning,
    EventKind.PROGRESSED: Progressed,
    EventKind.WATCHED: Watched,
    EventKind.REPORTS_IGNORED: ReportsIgnored,
    EventKind.SLICE_MISSING: AboutSlice,
    EventKind.SLICE_FOUND: AboutSlice,
    EventKind.SLICE_SUSPENDING: AboutSlice,
    EventKind.ATTEMPT_ENDED: AttemptEnded,
    EventKind.ATTEMPT_RETRIED: AttemptRepeated,
    EventKind.ATTEMPT_CONDEMNED: AttemptRepeated,
    EventKind.CONDEMNED_STOPPED: AboutSlice,
    EventKind.HELD: SliceHeld,
    EventKind.SLICE_KEPT: SliceKept,
    EventKind.RELEASE_STARTED: ReleaseStarted,
    EventKind.DELETE_ASKED: AboutSlice,
    EventKind.SLICE_GONE: AboutSlice,
    EventKind.SLICE_HANDED_ON: SliceHandedOn,
    EventKind.SLICE_RECEIVED: SliceReceived,
    EventKind.REQUEUED: Requeued,
    EventKind.SUCCEEDED: Finished,
    EventKind.FAILED: Finished,
    EventKind.CANCELLED: Finished,
    EventKind.CLEAN_REQUESTED: CleanRequested,
    EventKind.BUDGET_WARNED: BudgetWarned,
    EventKind.BUDGET_CHANGED: BudgetChanged,
    EventKind.QUEUE_MOVED: QueueMoved,
    EventKind.GROUP_EXTENDED: GroupExtended,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A fact in the past tense, appended once, with the state it caused."""

    kind: EventKind
    at: float
    state: State
    text: str  #: one sentence for people
    payload: Payload | None = None  #: of the type that `PAYLOADS` has for its kind
    by: str = ""  #: the name of the person who asked for it; empty: the backend did it by itself
    seq: int = 0  #: the version of the job that it made; 0 until it is stored
    schema_version: int = SCHEMA_VERSION
