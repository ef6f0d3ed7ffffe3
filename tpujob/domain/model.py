"""The records: what a job is, what was seen of the world, what was decided. Data only; the rules are elsewhere.

Times are seconds since the epoch, UTC, of the backend's clock. Records are frozen: a change is `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Json = Any  #: what `json.loads` gives


class State(StrEnum):
    """Where a job stands. The arrows between these are the table in `lifecycle.py`."""

    QUEUED = "queued"  #: owns no slice; asks for one at `wake`
    PROVISIONING = "provisioning"  #: a slice is asked for
    PREPARING = "preparing"  #: the slice is there; the program is being started on every host
    RUNNING = "running"  #: every host has started the program
    HOLDING = "holding"  #: cancelled: the program is stopped, the slice is kept until `hold_until`
    RELEASING = "releasing"  #: the slice is being given back; ends when it is seen to be gone
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class Wish(StrEnum):
    """What the user last asked for. An intent: the reconciler carries it out."""

    RUN = "run"
    CANCEL = "cancel"  #: stop the program, keep the slice for a while
    RELEASE = "release"  #: stop the program and give the slice back (`delete`, `cancel --release`)
    CLEAN = "clean"  #: as RELEASE, then remove logs, bundle and record


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Cause(StrEnum):
    """Why an attempt, or a request for a slice, ended. The list is closed."""

    PREEMPTED = "PREEMPTED"
    MAINTENANCE = "MAINTENANCE"
    STOCKOUT = "STOCKOUT"
    QUOTA = "QUOTA"
    PERMISSION = "PERMISSION"
    BAD_SPEC = "BAD_SPEC"
    SETUP = "SETUP"
    PREFLIGHT = "PREFLIGHT"
    OOM_HOST = "OOM_HOST"
    OOM_HBM = "OOM_HBM"
    TPU_BUSY = "TPU_BUSY"
    BAD_HOST = "BAD_HOST"
    NONFINITE = "NONFINITE"
    HANG = "HANG"
    CRASH = "CRASH"
    LOST_CONTACT = "LOST_CONTACT"
    BUDGET = "BUDGET"
    CANCELLED = "CANCELLED"


class Role(StrEnum):
    SERVING = "serving"
    CONDEMNED = "condemned"  #: swapped out as bad; kept only until its replacement is ready


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host of a slice, as it is reached."""

    host: int  #: numbered from 0
    internal_ip: str
    external_ip: str = ""

    @property
    def address(self) -> str:
        return self.external_ip or self.internal_ip


@dataclass(frozen=True, slots=True)
class Slice:
    """Hardware that a job holds or asked for. Its cloud name is a function of the job and `k`.

    With Multislice one record stands for several TPU slices of one type: they are asked for, are there and are lost as
    one, and their hosts are numbered through, the first slice's first."""

    name: str  #: `tj-<job>-<k>`, and the backend's own word where one bucket has folders of several
    k: int  #: counts from 1
    type: str  #: accelerator type, such as `v4-16`
    zone: str
    pricing: Literal["spot", "on-demand", "reserved"]
    runtime_version: str
    usd_per_hour: float | None  #: None: no price is known
    requested_at: float
    role: Role = Role.SERVING
    endpoints: tuple[Endpoint, ...] = ()
    ready_at: float | None = None  #: billing starts here
    missing_since: float | None = None  #: first seen absent although nobody saw it being deleted
    delete_reason: str = ""  #: stored before the first delete
    delete_asked_at: float | None = None  #: the first deletion that was accepted; it may yet fail
    gone_at: float | None = None  #: seen to be gone; billing ends here
    refused: Cause | None = None  #: the request came to nothing for this cause
    condemned_at: float | None = None
    stopped: bool = False  #: condemned: every host has confirmed that the program is gone
    tpu_slices: int = 1  #: TPU slices that it consists of; more than one: Multislice


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a program has come, from its reports. Unknown parts are None."""

    step: int | None = None
    steps: int | None = None  #: where it will stop, when it says so
    loss: float | None = None
    phase: str = ""
    checkpoint: int | None = None  #: newest committed step
    resumed_from: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a number that is not finite came from: the program's own replay says so, or a line of its output."""

    step: int | None = None  #: the step at which it was seen; None: the line does not say
    host: int | None = None
    device: str = ""  #: as the program names it
    blame: str = ""  #: `device`, `data` or `model` after a replay; empty: nobody has replayed it
    text: str = ""  #: one sentence, or the line that was matched


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the program on one slice. `outcome` and `cause`, once set, are never overwritten."""

    number: int  #: counts from 1
    slice: str
    started_at: float
    running_at: float | None = None  #: every host had started
    ended_at: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    host: int | None = None  #: the host that shows the cause
    message: str = ""
    evidence: tuple[str, ...] = ()  #: lines that prove the cause, each with its host
    progress: Progress = Progress()
    progress_at: float | None = None  #: when `progress` was last stored
    physical: tuple[
        str, ...
    ] = ()  #: the machines below its hosts, by host; empty where they are not known
    verdict: Verdict | None = None
    resume_before: int = 0  #: it may only resume from a checkpoint of an earlier step; 0: from any
    #: of what the program runs with, by name, the same on all hosts; empty: nothing was checked
    versions: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Code:
    """Where the checkout stood whose files are a job's code."""

    commit: str
    branch: str = ""  #: empty: none was checked out
    dirty: bool = False  #: the files differ from the commit
    diff: str = ""  #: object path of what differs, cut at a size; empty: nothing that git tracks


@dataclass(frozen=True, slots=True)
class Job:
    """A spec, a state, counters and a version. `domain/lifecycle.py` alone makes a new one out of an old one."""

    id: str  #: `000042`
    name: str
    user: str
    spec: Mapping[str, Json]  #: the JobSpec as submitted, every default filled in; never changes
    state: State
    wish: Wish
    created_at: float
    state_since: float
    version: int = 1
    wake: float = 0.0  #: no tick is due before this
    bucket: str = ""  #: `gs://…`; the workdir is below it
    bundles: tuple[str, ...] = ()  #: object paths below the bucket, unpacked in order
    code: Code | None = None  #: None: nothing is shipped, or it comes from no checkout
    slices: tuple[Slice, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    spent: Mapping[str, int] = field(default_factory=dict[str, int])  #: retry budgets used, by name
    then: State | None = None  #: where RELEASING leads, once the slice is gone
    hold_until: float | None = None
    wipe_checkpoints: bool = False  #: `clean` also removes the checkpoints
    stopped: bool = True  #: in HOLDING: every host has confirmed that the program is gone
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""  #: why it stands where it stands, in one line
    finished_at: float | None = None
    fresh_at: float = 0.0  #: when a person last set it going again after it had ended
    schema_version: int = 1

    @property
    def workdir(self) -> str:
        return f"{self.bucket}/jobs/{self.id}"

    @property
    def tpu_slices(self) -> int:
        """How many TPU slices it asks for at once; a record that is older than Multislice asks for one."""
        return self.spec["tpu"].get("slices", 1)

    @property
    def slice(self) -> Slice | None:
        """The serving slice: asked for and not yet seen to be gone."""
        live = [s for s in self.slices if s.role is Role.SERVING and s.gone_at is None]
        return live[-1] if live else None

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, ended or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def condemned(self) -> tuple[Slice, ...]:
        """The slices that were swapped out and are not yet seen to be gone."""
        return tuple(s for s in self.slices if s.role is Role.CONDEMNED and s.gone_at is None)


class EventKind(StrEnum):
    CREATED = "created"
    SLICE_REQUESTED = "slice_requested"
    SLICE_WAITING = "slice_waiting"  #: the cloud keeps the request in its queue
    SLICE_READY = "slice_ready"
    ATTEMPT_RUNNING = "attempt_running"
    PROGRESSED = "progressed"
    SLICE_MISSING = "slice_missing"  #: absent at first sight; a second look decides
    SLICE_FOUND = "slice_found"
    ATTEMPT_ENDED = "attempt_ended"  #: and the slice is given back
    ATTEMPT_RETRIED = "attempt_retried"  #: it ended, and the next one starts on the same slice
    ATTEMPT_CONDEMNED = (
        "attempt_condemned"  #: it ended, and the slice is kept until another is there
    )
    CONDEMNED_STOPPED = "condemned_stopped"
    HELD = "held"
    PROGRAM_STOPPED = "program_stopped"
    RELEASE_STARTED = "release_started"
    DELETE_ASKED = "delete_asked"
    SLICE_GONE = "slice_gone"
    REQUEUED = "requeued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CANCEL_REQUESTED = "cancel_requested"
    RELEASE_REQUESTED = "release_requested"
    CLEAN_REQUESTED = "clean_requested"
    RESUME_REQUESTED = "resume_requested"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class Event:
    """A fact in the past tense, appended once, with the state it caused. `data` is what `lifecycle.apply` folds in."""

    kind: EventKind
    at: float
    state: State
    text: str  #: one sentence for a person
    data: Mapping[str, Json] = field(default_factory=dict[str, Json])
    seq: int = 0  #: the version of the job that it made; 0 until it is stored


# What was seen -------------------------------------------------------------------------------------------------------


class SliceState(StrEnum):
    """What a cloud says of a slice, in our words; each adapter has the table from its own."""

    WAITING = "waiting"  #: in the cloud's queue
    CREATING = "creating"
    READY = "ready"
    REPAIRING = "repairing"  #: restarts or maintenance: waited out
    PREEMPTED = "preempted"
    FAILED = "failed"  #: the request ended in an error
    STOPPED = "stopped"  #: stopped or suspended by a person
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Present:
    state: SliceState
    endpoints: tuple[Endpoint, ...] = ()
    detail: str = ""  #: the cloud's own words
    cause: Cause | None = None  #: for FAILED: what the error means


@dataclass(frozen=True, slots=True)
class Absent:
    """A look and a list agree that it is not there."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Could not be seen. Nothing is concluded from it."""

    error: str


SliceSeen = Present | Absent | Unknown


@dataclass(frozen=True, slots=True)
class Report:
    """What the agent on a host says about its attempt, and how old that is by the storage's clock."""

    host: int
    attempt: int
    phase: str  #: fetching, setup, clearing, preflight, running, stopping, exited
    age: float  #: seconds since it was written
    exit_code: int | None = None  #: set when phase is `exited`; negative: killed by that signal
    error: str = ""  #: what the agent could not do, in one line
    error_cause: Cause | None = None
    notice: str = ""  #: `preempted` or `maintenance`, from the metadata server
    saved_in: float | None = None  #: seconds from the notice to the commit of a newer checkpoint
    progress: Progress = Progress()
    idle: float | None = None  #: seconds without a sign of progress, by the host's own clock
    looks: int = 0  #: how often the agent looked in that time
    verdict: Verdict | None = None
    physical: str = ""  #: the machine below the host; empty: not known
    #: of what the program runs with, by name: python, jax, jaxlib, libtpu
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    #: lines that the agent kept of a bad end or of a stall; read only when they are needed
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Silence:
    """How long a host has not answered over SSH."""

    seconds: float
    probes: int  #: how often it was asked in that time


@dataclass(frozen=True, slots=True)
class Circuit:
    """An offer that was refused: nobody asks for it before `until`, then one job at a time."""

    cause: Cause  #: STOCKOUT or QUOTA
    refusals: int  #: in a row
    since: float  #: of the first of them
    until: float
    opened_at: float = 0.0  #: of the last of them


@dataclass(frozen=True, slots=True)
class Suspect:
    """A physical machine that is suspected of wrong numbers."""

    physical: str
    zone: str
    score: float  #: as it stood at `updated_at`; it fades (`domain/suspects.py`)
    updated_at: float
    pinned: Literal["", "good", "bad"] = ""  #: a person's word, which the score does not change
    reasons: tuple[str, ...] = ()  #: the newest last


@dataclass(frozen=True, slots=True)
class Seen:
    """What could be observed of a job just now."""

    slices: Mapping[str, SliceSeen] = field(default_factory=dict[str, SliceSeen])  #: by slice name
    reports: tuple[Report, ...] | Unknown = ()  #: of the newest attempt only
    readable_for: float = 0.0  #: seconds for which reports could be read without a break
    silent: Mapping[int, Silence] = field(default_factory=dict[int, Silence])  #: over SSH, by host
    report_every: float = 15.0  #: seconds between two reports of a host
    leaving: frozenset[str] = frozenset()  #: slices that were seen being deleted, by name
    circuits: Mapping[str, Circuit] = field(
        default_factory=dict[str, Circuit]
    )  #: by `capacity.key`


# What was decided ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Ask for the job's serving slice. Safe to repeat: an existing one of ours is adopted."""


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    name: str


@dataclass(frozen=True, slots=True)
class StartProgram:
    """Make every host of the serving slice look like the newest attempt."""


@dataclass(frozen=True, slots=True)
class StopProgram:
    """Stop the program on every host of a slice; the devices are free afterwards."""

    name: str = ""  #: of a condemned slice; empty: the serving one


@dataclass(frozen=True, slots=True)
class WipeJob:
    """Remove what the bucket holds of the job (not its checkpoints, unless asked), then its record."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What one host is to run: a JSON document for the agent (`launch.py` writes it)."""

    host: int
    document: Mapping[str, Json]


Action = CreateSlice | DeleteSlice | StartProgram | StopProgram | WipeJob


@dataclass(frozen=True, slots=True)
class Done:
    """An action took effect."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """An action did not take effect, or nobody knows; it is repeated."""

    error: str


@dataclass(frozen=True, slots=True)
class Denied:
    """A remote service said no."""

    cause: Cause
    error: str


Result = Done | NotYet | Denied


@dataclass(frozen=True, slots=True)
class Decision:
    """At most one event and one action. The event is stored before the action is done."""

    event: Event | None = None
    action: Action | None = None
    wake_in: float = 10.0  #: seconds until the next look
