"""The events of a job and their payloads. Data only: `lifecycle.py` applies an event to the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tpujob.domain.copies import CopyProgress, Saved
from tpujob.domain.model import (
    SCHEMA_VERSION,
    Cause,
    End,
    Endpoint,
    Ignored,
    Progress,
    Slice,
    State,
    Warnings,
    Watch,
)
from tpujob.errors import Scope


class EventKind(StrEnum):
    CREATED = "created"
    COPY_STARTED = "copy_started"  #: of data or a checkpoint, into the region of an offer
    COPY_ADVANCED = "copy_advanced"
    COPY_FINISHED = "copy_finished"
    COPY_REFUSED = "copy_refused"  #: no slice is requested in its region any more
    SLICE_REQUESTED = "slice_requested"
    SLICE_WAITING = "slice_waiting"  #: the cloud keeps the request in its queue
    SLICE_CREATING = "slice_creating"  #: the request has left that queue
    SLICE_READY = "slice_ready"
    CANDIDATE_REQUESTED = "candidate_requested"  #: beside the serving slice, in another place
    CANDIDATE_LOST = "candidate_lost"  #: it is refused, or needed no longer, and is released
    #: the serving slice's request failed, and a candidate serves in its stead
    CANDIDATE_PROMOTED = "candidate_promoted"
    ATTEMPT_RUNNING = "attempt_running"
    PROGRESSED = "progressed"
    LOSS_NONFINITE = "loss_nonfinite"  #: the newest reported loss is NaN or infinite
    LOSS_FINITE = "loss_finite"  #: again
    WATCHED = "watched"  #: some hosts do not report
    REPORTS_IGNORED = "reports_ignored"  #: others write in the place of its hosts' reports
    WARNED = "warned"  #: of its outputs, or of hosts that began differently
    SLICE_MISSING = "slice_missing"  #: one poll found it absent; a second one decides
    SLICE_FOUND = "slice_found"
    ATTEMPT_ENDED = "attempt_ended"  #: and the slice is released
    ATTEMPT_RETRIED = "attempt_retried"  #: it ended, and the next one starts on the same slice
    #: it ended, and its slice is kept until its replacement is ready
    ATTEMPT_CONDEMNED = "attempt_condemned"
    ATTEMPT_SWAPPED = "attempt_swapped"  #: the same, and a candidate is the replacement
    CONDEMNED_STOPPED = "condemned_stopped"
    HELD = "held"
    PROGRAM_STOPPED = "program_stopped"
    RELEASE_STARTED = "release_started"
    #: the cloud is suspending it; its deletion waits for that
    SLICE_SUSPENDING = "slice_suspending"
    DELETE_ASKED = "delete_asked"
    SLICE_GONE = "slice_gone"
    SLICE_BILLED = "slice_billed"  #: the cloud shows something about its billed time
    SLICE_HANDED_ON = "slice_handed_on"  #: to another job
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
    BUDGET_WARNED = "budget_warned"  #: 80 % of a budget are used
    BUDGET_CHANGED = "budget_changed"
    DEADLINE_MISSED = "deadline_missed"  #: `finish_by` is over; the job continues
    QUEUE_HELD = "queue_held"  #: no slice is requested until it is released
    QUEUE_RELEASED = "queue_released"
    QUEUE_MOVED = "queue_moved"  #: among the jobs of its owner
    HANDED_OVER = "handed_over"  #: to another owner
    ANNOTATED = "annotated"  #: a person changed its note or its tags
    #: the program is to be stopped, and the job to wait for a slice again
    REQUEUE_REQUESTED = "requeue_requested"
    GROUP_EXTENDED = "group_extended"  #: elements of an array or a sweep were made
    GROUP_REOPENED = "group_reopened"  #: after its end, an element was resumed


#: events that store what the hosts of a running program show; they end, delete and request nothing
OBSERVED = frozenset(
    {
        EventKind.PROGRESSED,
        EventKind.LOSS_NONFINITE,
        EventKind.LOSS_FINITE,
        EventKind.WATCHED,
        EventKind.REPORTS_IGNORED,
        EventKind.WARNED,
    }
)


@dataclass(frozen=True, slots=True)
class CopyStarted:
    """Fields have the same meaning as in `Copy`."""

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
    """The progress of a copy, or its completion."""

    id: str
    progress: CopyProgress


@dataclass(frozen=True, slots=True)
class CopyRefused:
    id: str
    cause: Cause
    error: str


@dataclass(frozen=True, slots=True)
class SliceRequested:
    """Fields have the same meaning as in `Slice`."""

    name: str
    k: int
    type: str
    zone: str
    pricing: str
    provider: str
    system_image: str
    usd_per_hour: float | None
    bucket: str = ""
    tpu_slices: int = 1
    run_for: int | None = None
    reservation: str = ""
    race: int = 1


@dataclass(frozen=True, slots=True)
class SliceReady:
    endpoints: tuple[Endpoint, ...]
    ready_at: float | None = None  #: None: the event's own time
    ends_at: float | None = None  #: as in `Slice`
    slice: str = ""  #: name of the candidate that serves now; empty: the serving one is ready
    #: names of the candidates that still wait, in case the pre-flight fails; all others lose
    runners_up: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateLost:
    slice: str
    refused: Cause | None = None  #: cause with which the request was refused
    scope: Scope = ""  #: of the refusal
    limit: int | None = None  #: of the quota, in its own unit; None: unknown


@dataclass(frozen=True, slots=True)
class CandidatePromoted:
    slice: str  #: name of the candidate that serves now
    failed: CandidateLost  #: the request that served before


@dataclass(frozen=True, slots=True)
class SliceHandedOn:
    slice: str
    to: str  #: id of the job


@dataclass(frozen=True, slots=True)
class SliceReceived:
    slice: Slice  #: for the record of the job that receives it
    giver: str  #: id of the job that had it before


@dataclass(frozen=True, slots=True)
class AboutSlice:
    slice: str
    certain_until: float | None = None  #: as in `Slice`


@dataclass(frozen=True, slots=True)
class SliceBilled:
    """What the cloud shows about the billed time of a slice, which no poll saw before. Fields as in `Slice`."""

    slice: str
    ready_at: float | None = None  #: None: as it is stored
    preempted_at: float | None = None
    certain_until: float | None = None
    endpoints: tuple[Endpoint, ...] = ()  #: of a slice that is ready and may be handed on


@dataclass(frozen=True, slots=True)
class AttemptRunning:
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    running_at: float | None = None  #: None: the event's own time


@dataclass(frozen=True, slots=True)
class Progressed:
    progress: Progress
    first: bool = False  #: no step of this attempt was seen before
    running_at: float | None = None  #: start of the program, if it was unknown before


@dataclass(frozen=True, slots=True)
class Watched:
    watch: Watch


@dataclass(frozen=True, slots=True)
class Warned:
    warnings: Warnings


@dataclass(frozen=True, slots=True)
class ReportsIgnored:
    ignored: Ignored


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    end: End
    next_state: State  #: state after the release of the slice
    budget: str = ""  #: the retry budget of which one is used; empty: none


@dataclass(frozen=True, slots=True)
class AttemptRepeated:
    """The next attempt starts on the same slice, or on a new one while this one is condemned."""

    end: End
    delay: float  #: seconds until the next attempt, or the next request for a slice
    budget: str
    promoted: str = ""  #: name of the candidate that serves now; empty: none


@dataclass(frozen=True, slots=True)
class SliceHeld:
    hold_until: float
    end: End | None  #: None: the slice was held before a program ran on it
    endpoints: tuple[Endpoint, ...] = ()  #: of a slice that became ready just now
    ready_at: float | None = None  #: as in `SliceReady`
    ends_at: float | None = None  #: as in `Slice`
    #: state after the release, if the slice is released once the program stops
    next_state: State | None = None
    gives_way_to: str = ""  #: id of a job of a higher priority, for which the program stops


@dataclass(frozen=True, slots=True)
class SliceKept:
    until: float


@dataclass(frozen=True, slots=True)
class ReleaseStarted:
    next_state: State
    cause: Cause | None  #: None: the job is requeued
    budget: str = ""
    refused: Cause | None = None  #: cause with which the request was refused
    scope: Scope = ""  #: of the refusal
    limit: int | None = None  #: of the quota, in its own unit; None: unknown
    gives_way_to: str = ""  #: id of a job of a higher priority, for which the request is withdrawn


@dataclass(frozen=True, slots=True)
class Requeued:
    delay: float  #: seconds until the next request


@dataclass(frozen=True, slots=True)
class Finished:
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class CleanRequested:
    checkpoints: bool  #: remove them, too


@dataclass(frozen=True, slots=True)
class BudgetWarned:
    """Amounts are in micro-dollars."""

    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class BudgetChanged:
    limit: int  #: micro-dollars


@dataclass(frozen=True, slots=True)
class QueueMoved:
    rank: int


@dataclass(frozen=True, slots=True)
class HandedOver:
    owner: str  #: a `Principal.id`
    user: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """The note and the tags from now on."""

    note: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupExtended:
    made: int  #: number of elements made so far


Payload = (
    CopyStarted
    | CopyMoved
    | CopyRefused
    | SliceRequested
    | SliceReady
    | CandidateLost
    | CandidatePromoted
    | SliceHandedOn
    | SliceReceived
    | AboutSlice
    | SliceBilled
    | AttemptRunning
    | Progressed
    | Watched
    | ReportsIgnored
    | Warned
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
    | HandedOver
    | Annotation
    | GroupExtended
)

#: type of the payload by kind; events of other kinds have none
PAYLOADS: Mapping[EventKind, type[Payload]] = {
    EventKind.COPY_STARTED: CopyStarted,
    EventKind.COPY_ADVANCED: CopyMoved,
    EventKind.COPY_FINISHED: CopyMoved,
    EventKind.COPY_REFUSED: CopyRefused,
    EventKind.SLICE_REQUESTED: SliceRequested,
    EventKind.SLICE_READY: SliceReady,
    EventKind.CANDIDATE_REQUESTED: SliceRequested,
    EventKind.CANDIDATE_LOST: CandidateLost,
    EventKind.CANDIDATE_PROMOTED: CandidatePromoted,
    EventKind.ATTEMPT_RUNNING: AttemptRunning,
    EventKind.PROGRESSED: Progressed,
    EventKind.LOSS_NONFINITE: Progressed,
    EventKind.LOSS_FINITE: Progressed,
    EventKind.WATCHED: Watched,
    EventKind.REPORTS_IGNORED: ReportsIgnored,
    EventKind.WARNED: Warned,
    EventKind.SLICE_MISSING: AboutSlice,
    EventKind.SLICE_FOUND: AboutSlice,
    EventKind.SLICE_SUSPENDING: AboutSlice,
    EventKind.SLICE_BILLED: SliceBilled,
    EventKind.ATTEMPT_ENDED: AttemptEnded,
    EventKind.ATTEMPT_RETRIED: AttemptRepeated,
    EventKind.ATTEMPT_CONDEMNED: AttemptRepeated,
    EventKind.ATTEMPT_SWAPPED: AttemptRepeated,
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
    EventKind.HANDED_OVER: HandedOver,
    EventKind.ANNOTATED: Annotation,
    EventKind.GROUP_EXTENDED: GroupExtended,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A stored fact, appended once, with the state that it led to."""

    kind: EventKind
    at: float
    state: State
    text: str  #: one sentence for people
    payload: Payload | None = None  #: of the type that `PAYLOADS` names
    by: str = ""  #: name of the person who requested it; empty: the backend itself
    #: stored with the event, which is most often the end of the slice's attempt: a commit of its own costs as much
    billed: SliceBilled | None = None
    seq: int = 0  #: version of the job after the event; 0 until it is stored
    schema_version: int = SCHEMA_VERSION

    @property
    def gives_way_to(self) -> str:
        """The id of the job for which this event gives up a slice or a request; empty: for none."""
        payload = self.payload
        return payload.gives_way_to if isinstance(payload, SliceHeld | ReleaseStarted) else ""
