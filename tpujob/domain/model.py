"""The records: what a job is, and what is remembered of machines. Data only; the rules are elsewhere.

Times are seconds since the epoch, UTC, of the backend's clock. Records are frozen: a change is `dataclasses.replace`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from tpujob.domain.copies import Copy, Dataset
from tpujob.domain.spec import JobSpec
from tpujob.errors import Scope
from tpujob.protocol.paths import owner_folder

Json = Any  #: what `json.loads` gives
Pricing = Literal["spot", "on-demand", "reserved"]

#: of the records. What knows 7 alone would drop what a job waits for
SCHEMA_VERSION = 9


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


class DesiredState(StrEnum):
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
    DEPENDENCY = "DEPENDENCY"  #: a job that it waits for will never be as it must be


#: the provider of every slice of a record that names none
CLOUD_TPU = "cloud-tpu"


class SliceRole(StrEnum):
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

    name: str  #: `tj-<job>-<k>-<word of the job>`; of a job without a word: `tj-<job>-<k>`, or with the backend's word
    k: int  #: counts from 1
    type: str  #: accelerator type, such as `v4-16`
    zone: str
    pricing: Pricing
    runtime_version: str
    usd_per_hour: float | None  #: None: no price is known
    requested_at: float
    role: SliceRole = SliceRole.SERVING
    endpoints: tuple[Endpoint, ...] = ()
    ready_at: float | None = None  #: billing starts here
    #: when a look first found it absent although no look saw its deletion
    missing_since: float | None = None
    #: first seen being suspended by the cloud, when it was to be deleted: that waits (`decide/releasing.py`)
    suspending_since: float | None = None
    in_queue: bool = False  #: the cloud keeps the request in its queue, as was last stored
    delete_reason: str = ""  #: for people; stored before the first delete
    delete_asked_at: float | None = None  #: the first deletion that was accepted; it may yet fail
    gone_at: float | None = None  #: seen to be gone; billing ends here
    refused: Cause | None = None  #: the request came to nothing for this cause
    refused_scope: Scope = ""  #: where that refusal holds
    condemned_at: float | None = None
    stopped: bool = False  #: condemned: every host has confirmed that the program is gone
    tpu_slices: int = 1  #: TPU slices that it consists of; more than one: Multislice
    bucket: str = ""  #: that its attempts keep their files in; empty: the job's
    provider: str = CLOUD_TPU  #: the API that it is requested from (`adapters/providers.py`)
    #: counts the jobs that have had it: a host that was started for a later one refuses an earlier one
    epoch: int = 0
    received_from: str = ""  #: id of the job that had it before
    handed_to: str = ""  #: id of the job that has it now; billing of this one ended at `gone_at`


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a program has come, from its reports. Unknown parts are None."""

    step: int | None = None
    steps: int | None = None  #: where it will stop, when it says so
    loss: float | None = None
    phase: str = ""
    checkpoint: int | None = None  #: newest committed step
    resumed_from: int | None = None
    first_step: int | None = None  #: the first that it made in this attempt
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a number that is not finite came from: the program's own replay says so, or a line of its output."""

    step: int | None = None  #: the step at which it was seen; None: the line does not say
    host: int | None = None
    device: str = ""  #: as the program names it
    #: `device`, `data` or `model` after a replay; empty: the step was not replayed
    blame: str = ""
    text: str = ""  #: one sentence, or the line that was matched


@dataclass(frozen=True, slots=True)
class Unreached:
    """A host that got no answer from another one of its slice, as when a firewall is between them."""

    source: int
    target: int
    port: int  #: of TCP


@dataclass(frozen=True, slots=True)
class Proof:
    """A line that proves why an attempt ended."""

    host: int | None  #: None: it is about several hosts
    text: str

    def __str__(self) -> str:
        return self.text if self.host is None else f"host {self.host}: {self.text}"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A host that does not answer over SSH."""

    host: int
    since: float
    probes: int  #: how often it was asked in that time


@dataclass(frozen=True, slots=True)
class Watch:
    """What one backend has observed of hosts that do not report: the next backend continues from it."""

    since: float  #: since when every look could read the reports
    at: float  #: of the newest look that was stored
    unanswered: tuple[Unanswered, ...] = ()
    #: when every host had taken the start; None: not that anybody knows
    launched: float | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """Objects in the place of an attempt's reports that were rejected, as counted by one backend."""

    unverified: int  #: not signed by its hosts, or about something else
    replayed: int  #: signed, and older than what was heard before
    at: float  #: when that was counted

    @property
    def total(self) -> int:
        return self.unverified + self.replayed


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the program on one slice. `outcome` and `cause`, once set, stay; but one that was stopped by its
    user, or for want of money, may prove to have succeeded before that."""

    number: int  #: counts from 1
    slice: str
    started_at: float
    running_at: float | None = None  #: every host had started
    ended_at: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    host: int | None = None  #: the host that shows the cause
    message: str = ""  #: what happened, in one line for people: of an error its class alone
    evidence: tuple[Proof, ...] = ()
    progress: Progress = Progress()
    progress_at: float | None = None  #: when `progress` was last stored
    #: the machines below its hosts, by host; empty where they are not known
    physical: tuple[str, ...] = ()
    verdict: Verdict | None = None
    #: None: the hosts reached each other, or did not try
    unreached: Unreached | None = None
    resume_before: int = 0  #: it may only resume from a checkpoint of an earlier step; 0: from any
    #: of what the program runs with, by name, the same on all hosts; empty: nothing was checked
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    #: when a step was first seen; None: none, or the time was not noted
    first_step_at: float | None = None
    first_step: int | None = None  #: that step; the hosts' own word is in `progress`
    idle: float | None = None  #: it ended in a hang, after so many seconds without progress
    watch: Watch | None = None  #: the newest; None: there was always word of every host
    ignored: Ignored | None = None  #: the most that was stored; None: every report was believed
    #: `message` with the text of the error, which is its owner's; empty: it has none
    detail: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, and what proves it. The fields mean what they mean in an `Attempt`."""

    outcome: Outcome
    cause: Cause | None  #: None: it succeeded
    host: int | None
    message: str
    evidence: tuple[Proof, ...] = ()
    verdict: Verdict | None = None
    unreached: Unreached | None = None
    late: bool = False  #: something was not done in time; nothing was found wrong
    progress: Progress | None = None  #: None: no host has reported any
    physical: tuple[str, ...] = ()
    idle: float | None = None
    running_at: float | None = None  #: None: that is known already, or it did not run
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Where the checkout stood whose files are a job's code."""

    commit: str
    branch: str = ""  #: empty: none was checked out
    dirty: bool = False  #: the files differ from the commit
    diff: str = ""  #: object path of what differs, cut at a size; empty: nothing that git tracks


@dataclass(frozen=True, slots=True)
class Rest:
    """The time from the end of a job until a person resumed it."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Grant:
    """Chips that a programme such as the TPU Research Cloud pays for."""

    generation: str  #: such as `v4`
    zone: str
    pricing: Pricing
    chips: int


@dataclass(frozen=True, slots=True)
class Edge:
    """Another job, or group, that a job waits for before its first slice is requested."""

    job: str  #: its id
    on: Literal["success", "end", "failure", "start"] = "success"
    each: bool = False  #: of a group: the element of the same index


@dataclass(frozen=True, slots=True)
class Job:
    """A spec, a state, counters and a version. `domain/lifecycle.py` alone makes a new one out of an old one."""

    id: str  #: `000042`
    name: str
    user: str
    spec: JobSpec  #: as submitted, every default filled in; never changes
    state: State
    wish: DesiredState
    created_at: float
    state_since: float
    version: int = 1
    wake: float = 0.0  #: no tick is due before this
    bucket: str = ""  #: `gs://…`, of the first offer; what is shipped lies there
    buckets: Mapping[str, str] = field(default_factory=dict[str, str])  #: by region it may run in
    bundles: tuple[str, ...] = ()  #: object paths below the bucket, unpacked in order
    code: Code | None = None  #: None: nothing is shipped, or it comes from no checkout
    slices: tuple[Slice, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    spent: Mapping[str, int] = field(default_factory=dict[str, int])  #: retry budgets used, by name
    #: where RELEASING leads, once the slice is gone; QUEUED while a program runs: it is to be requeued
    then: State | None = None
    #: in HOLDING, and in RELEASING where the slice is kept for another job
    hold_until: float | None = None
    wipe_checkpoints: bool = False  #: `clean` also removes the checkpoints
    stopped: bool = True  #: in HOLDING: every host has confirmed that the program is gone
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""  #: why it stands where it stands, in one line for people
    finished_at: float | None = None
    fresh_at: float = 0.0  #: when a person last set it going again after it had ended
    rests: tuple[Rest, ...] = ()
    grants: tuple[Grant, ...] = ()  #: of its context, as they were at its submission
    #: micro-dollars that it may cost, as last set after its submission; None: what its spec says
    spend_limit: int | None = None
    #: the limit for which the job has the warning that 80 % are used
    warned_limit: int | None = None
    data: tuple[Dataset, ...] = ()  #: what it reads, and where in each region that it may run in
    copies: tuple[Copy, ...] = ()  #: made or being made for it
    #: a `Principal.id`; empty: the job has no owner, or is older than owners are
    owner: str = ""
    folder: str = ""  #: of its owner, in each bucket; empty: the bucket itself
    #: of its workdir and its slices: random, so that a job of a lost store that had the same id shares no object and no
    #: slice with this one; empty: created before there were such words
    word: str = ""
    #: the jobs of `spec.after`, as their names were resolved at its submission
    edges: tuple[Edge, ...] = ()
    held_by: str = ""  #: the name of the person who holds it in the queue; empty: it is not held
    queued_at: float = 0.0  #: when a person last released it into the queue, or put it back
    rank: int = 0  #: among its owner's jobs of one band, larger goes first
    group: str = ""  #: id of the group that it is an element of; empty: of none
    index: int | None = None  #: in its group, from 0
    #: of the element, by name, as they were written into its spec
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    submitted: int = 0  #: of a group: elements that were made
    #: elements of the group that it is, or that it is an element of
    group_size: int = 0
    schema_version: int = SCHEMA_VERSION

    def workdir_in(self, bucket: str) -> str:
        folder = f"{self.id}-{self.word}" if self.word else self.id
        return f"{owner_folder(bucket or self.bucket, self.folder)}/jobs/{folder}"

    def workdir_of(self, attempt: int) -> str:
        """Of the attempt of that number; of one that never was: the newest's."""
        if not 0 < attempt <= len(self.attempts):
            return self.workdir
        name = self.attempts[attempt - 1].slice
        return self.workdir_in(next((s.bucket for s in self.slices if s.name == name), ""))

    @property
    def workdir(self) -> str:
        """Of the newest attempt; before the first one, that in the bucket of the first offer."""
        return self.workdir_of(len(self.attempts)) if self.attempts else self.workdir_in("")

    @property
    def workdirs(self) -> tuple[str, ...]:
        """Every one that attempts, or copies for them, have written to."""
        used = [self.bucket, *(s.bucket for s in self.slices)]
        used += [self.buckets.get(c.region, "") for c in self.copies if c.saved]
        return tuple(dict.fromkeys(map(self.workdir_in, used)))

    @property
    def submitter(self) -> str:
        """Whose it is in the queue: its owner; of a job from before there were owners, its user."""
        return self.owner or self.user

    @property
    def tpu_slices(self) -> int:
        """How many TPU slices it asks for at once."""
        return self.spec.tpu.slices

    @property
    def slice(self) -> Slice | None:
        """The serving slice: asked for and not yet seen to be gone."""
        for one in reversed(self.slices):
            if one.gone_at is None and one.role is SliceRole.SERVING:
                return one
        return None

    @property
    def hosts(self) -> int:
        """Return how many hosts the serving slice has; 0 while it is not ready."""
        return len(self.slice.endpoints) if self.slice else 0

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, ended or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def condemned(self) -> tuple[Slice, ...]:
        """The slices that were swapped out and are not yet seen to be gone."""
        return tuple(s for s in self.slices if s.role is SliceRole.CONDEMNED and s.gone_at is None)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A physical machine that is suspected of wrong numbers."""

    physical: str
    zone: str
    score: float  #: as it stood at `updated_at`; it fades (`domain/failures/host_reputation.py`)
    updated_at: float
    pinned: Literal["", "good", "bad"] = ""  #: a person's word, which the score does not change
    reasons: tuple[str, ...] = ()  #: the newest last
    #: whose jobs have made which part of the score; empty: made before that was noted
    owners: Mapping[str, float] = field(default_factory=dict[str, float])
