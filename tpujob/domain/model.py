"""The stored records: jobs, their slices and attempts, and suspected machines. Data only, without rules.

Times are seconds since the epoch, UTC, of the backend's clock. Records are frozen: a change is `dataclasses.replace`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Any, Literal

from tpujob.domain.copies import Copy, Dataset
from tpujob.domain.final_states import FINAL
from tpujob.domain.spec import JobSpec
from tpujob.errors import Scope
from tpujob.protocol.paths import owner_folder

Json = Any  #: a value from `json.loads`

SCHEMA_VERSION = 1  #: version of the records
#: number of refused slices, the newest, that stay in the record beside the first of the wait; the events keep them all
REFUSALS = 20


class State(StrEnum):
    """The state of a job. The table of transitions is in `lifecycle.py`."""

    QUEUED = "queued"  #: owns no slice; requests one at `wake`
    PROVISIONING = "provisioning"  #: a slice was requested
    PREPARING = "preparing"  #: the slice is ready; the program is being started on every host
    RUNNING = "running"  #: every host has started the program
    HOLDING = "holding"  #: cancelled: the program is stopped, the slice is kept until `hold_until`
    RELEASING = "releasing"  #: the slice is being deleted, until a poll confirms that it is gone
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


class DesiredState(StrEnum):
    """The user's last request about a job, which the reconciler carries out."""

    RUN = "run"
    CANCEL = "cancel"  #: stop the program, keep the slice for a while
    RELEASE = "release"  #: stop the program and delete the slice (`delete`, `cancel --release`)
    CLEAN = "clean"  #: as RELEASE, then remove logs, bundle and record


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Cause(StrEnum):
    """The cause with which an attempt, or a request for a slice, ended. The list is closed."""

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
    OUTPUTS = "OUTPUTS"  #: the program ended with 0, and its outputs could not be saved
    HANG = "HANG"
    CRASH = "CRASH"
    RESTART = "RESTART"  #: the program asked to be started again
    LOST_CONTACT = "LOST_CONTACT"
    BUDGET = "BUDGET"
    TIME_LIMIT = "TIME_LIMIT"  #: `max_time` is reached
    PLANNED_END = "PLANNED_END"  #: the time of its slice, which was known from the start, is over
    CANCELLED = "CANCELLED"
    GAVE_WAY = "GAVE_WAY"  #: a job of a higher priority needs its chips; it is queued again
    DEPENDENCY = "DEPENDENCY"  #: the condition on another job cannot be met any more


class SliceRole(StrEnum):
    SERVING = "serving"
    CONDEMNED = "condemned"  #: swapped out as bad; kept only until its replacement is ready
    CANDIDATE = "candidate"  #: requested beside the serving one: the first that is ready serves


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses of one host of a slice."""

    host: int  #: numbered from 0
    internal_ip: str
    external_ip: str = ""

    @property
    def address(self) -> str:
        return self.external_ip or self.internal_ip


@dataclass(frozen=True, slots=True)
class GaveWay:
    """That a job gave up its slice, or its request for one, for a job of a higher priority."""

    to: str  #: id of that job
    at: float


@dataclass(frozen=True, slots=True)
class Slice:
    """Hardware that a job holds or has requested. Its cloud name is a function of the job and `k`.

    With Multislice, one record stands for several TPU slices of one type. They are requested, ready and lost together,
    and their hosts are numbered consecutively, the first slice's first."""

    name: str  #: `tj-<job>-<k>-<suffix of the job>`
    k: int  #: counts from 1
    type: str  #: accelerator type, such as `v4-16`
    zone: str
    pricing: str
    provider: str  #: the API that it is requested from (`ports/providers.py`)
    #: what its hosts boot, as the provider names it: at Cloud TPU a runtime version
    system_image: str
    usd_per_hour: float | None  #: None: unknown price
    requested_at: float
    role: SliceRole = SliceRole.SERVING
    endpoints: tuple[Endpoint, ...] = ()
    ready_at: float | None = None  #: billing starts here
    seen_at: float | None = None  #: when a poll first saw it ready; None: at `ready_at`
    #: when the cloud was first seen to report it as preempted, or as being suspended by the service
    preempted_at: float | None = None
    #: its billed time is certain up to here; it was lost after that, while no poll saw it. None: all of it is certain
    certain_until: float | None = None
    #: time of the first poll that found it absent, if no poll saw its deletion
    missing_since: float | None = None
    #: when the cloud was first seen suspending it; its deletion waits for that (`decide/releasing.py`)
    suspending_since: float | None = None
    in_queue: bool = False  #: as last stored: the request waits in the cloud's queue
    delete_reason: str = ""  #: for people; stored before the first deletion
    delete_asked_at: float | None = None  #: first accepted deletion, which may still fail
    gone_at: float | None = None  #: confirmed gone; billing ends here
    refused: Cause | None = None  #: cause with which the cloud refused the request
    refused_scope: Scope = ""  #: scope of that refusal
    refused_limit: int | None = None  #: of the quota, in its own unit; None: unknown
    condemned_at: float | None = None
    #: candidate: when another slice was chosen, or its own request failed; from then on it is only released
    lost_at: float | None = None
    stopped: bool = False  #: condemned: every host has confirmed that the program is gone
    tpu_slices: int = 1  #: number of TPU slices; more than one: Multislice
    bucket: str = ""  #: bucket of its attempts' files; empty: the job's
    run_for: int | None = None  #: seconds for which it is requested; None: for any time
    reservation: str = ""  #: that it is requested from; empty: the context's, or none
    #: when the cloud takes it back, known since it is ready; None: at no time that is known
    ends_at: float | None = None
    race: int = (
        1  #: number of places in which the job may request a slice while this one is not ready
    )
    #: number of jobs that have had the slice: a host refuses a start with an older epoch
    epoch: int = 0
    received_from: str = ""  #: id of the previous job of the slice
    handed_to: str = ""  #: id of the next job of the slice; this job's billing ended at `gone_at`
    gave_way: GaveWay | None = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Type, zone, pricing and provider, as `Offer.place`."""
        return self.type, self.zone, self.pricing, self.provider


@dataclass(frozen=True, slots=True)
class NonfiniteLoss:
    """The newest loss of a program is not finite."""

    loss: str  #: `NaN`, `inf` or `-inf`; `not finite`: a line of output matched `watch.nonfinite`
    #: first step with such a loss since the last finite one; None: unknown
    since: int | None = None
    host: int | None = None  #: host that reports it, if the loss of another host is finite

    def __str__(self) -> str:
        since = "" if self.since is None else f" since step {self.since}"
        return f"loss is {self.loss}{since}{'' if self.host is None else f' on host {self.host}'}"


@dataclass(frozen=True, slots=True)
class FoundProgress:
    """Progress that was found in the output and files of a program that reports none. It is shown and decides
    nothing."""

    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    nonfinite: str = ""  #: one of NONFINITE_LOSSES, if the newest loss is not finite
    step_s: float | None = None  #: mean seconds of a step
    #: of files for TensorBoard and W&B; None: not finite
    metrics: Mapping[str, float | None] = field(default_factory=dict[str, float | None])


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a program, from its hosts' reports. Unknown fields are None."""

    step: int | None = None
    steps: int | None = None  #: last step of the whole training, if the program reports it
    loss: float | None = None
    nonfinite: NonfiniteLoss | None = None  #: None: the loss is finite, or unknown
    phase: str = ""
    #: newest committed step, before `nonfinite.since`; of several hosts: that every host has which saves
    checkpoint: int | None = None
    #: a newer one, which only some of these hosts have reported
    partial_checkpoint: int | None = None
    resumed_from: int | None = None
    first_step: int | None = None  #: first step of this attempt
    #: None: not finite
    metrics: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    found: FoundProgress | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The source of a number that is not finite, from the program's replay or from a line of its output."""

    step: int | None = None  #: step of the number; None: the line does not contain it
    host: int | None = None
    device: str = ""  #: the program's name of the device
    #: `device`, `data` or `model`, from a replay; empty: the step was not replayed
    blame: str = ""
    text: str = ""  #: one sentence, or the matched line


@dataclass(frozen=True, slots=True)
class Unreached:
    """A connection between two hosts of a slice that got no answer, because of a firewall for example."""

    source: int
    target: int
    port: int  #: TCP port


@dataclass(frozen=True, slots=True)
class Proof:
    """A line that proves the cause of an attempt's end."""

    host: int | None  #: None: it is about several hosts
    text: str

    def __str__(self) -> str:
        return self.text if self.host is None else f"host {self.host}: {self.text}"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A host that does not answer over SSH."""

    host: int
    since: float
    probes: int  #: number of SSH probes since then


@dataclass(frozen=True, slots=True)
class Watch:
    """A backend's observations of hosts that do not report, stored so that the next backend continues from them."""

    since: float  #: start of the time in which every poll could read the reports
    at: float  #: time of the newest stored poll
    unanswered: tuple[Unanswered, ...] = ()
    #: when every host had accepted the start; None: unknown
    launched: float | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """Counts of rejected objects in the place of an attempt's reports, by one backend."""

    unverified: int  #: without a valid signature of its hosts, or about another attempt
    replayed: int  #: signed, but older than an accepted report
    at: float  #: time of the count

    @property
    def total(self) -> int:
        return self.unverified + self.replayed


@dataclass(frozen=True, slots=True)
class UnevenStart:
    """Two hosts of an attempt that began differently: from other steps, or with and without files of `outputs`."""

    ahead: int  #: number of the host
    step: int | None  #: that it resumed from; 0: the beginning; None: unknown
    behind: int
    behind_step: int | None


@dataclass(frozen=True, slots=True)
class Warnings:
    """What a person should know of an attempt although it continues. `failures/warnings.py` has the sentences."""

    uneven: UnevenStart | None = None
    left_out: int = 0  #: files of `outputs` that cannot be kept, on all hosts
    #: folders of `outputs` without a file although there should be one: on all hosts, or on some after a checkpoint
    empty: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the program on one slice. `outcome` and `cause` do not change once set, but for an attempt that its
    user or a limit stopped: it may prove to have succeeded before."""

    number: int  #: counts from 1
    slice: str
    started_at: float
    running_at: float | None = None  #: every host had started
    ended_at: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    host: int | None = None  #: host on which the cause was seen
    message: str = ""  #: the end in one line for people; of an error its class alone
    evidence: tuple[Proof, ...] = ()
    progress: Progress = Progress()
    progress_at: float | None = None  #: when `progress` was last stored
    #: physical machine of each host; empty: unknown
    physical: tuple[str, ...] = ()
    verdict: Verdict | None = None
    #: None: no failed connection between hosts is known
    unreached: Unreached | None = None
    #: the program may have been started on a host; False: every report shows that it was not
    started: bool = True
    resume_before: int = 0  #: it may resume only from a checkpoint before this step; 0: from any
    #: versions of Python, jax, jaxlib and libtpu, the same on all hosts; empty: unchecked
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    #: when a step was first seen; None: no step was seen
    first_step_at: float | None = None
    first_step: int | None = None  #: the step seen then; the hosts report theirs in `progress`
    idle: float | None = None  #: seconds without progress, if it ended in a hang
    watch: Watch | None = None  #: the newest; None: every host has always reported
    ignored: Ignored | None = None  #: the largest stored count; None: every report was accepted
    warnings: Warnings = Warnings()
    #: `message` with the text of the error, which only the owner may read; empty: no such text
    detail: str = ""
    #: the program failed in the same way on several machines, so that it is the cause
    everywhere: bool = False
    #: an error in the last lines of a program that ended with 0; None: there is none
    last_error: Proof | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The end of an attempt with its evidence. Fields have the same meaning as in `Attempt`."""

    outcome: Outcome
    cause: Cause | None  #: None: the attempt succeeded
    host: int | None
    message: str
    evidence: tuple[Proof, ...] = ()
    verdict: Verdict | None = None
    unreached: Unreached | None = None
    late: bool = False  #: a time limit passed; no fault was found
    started: bool = True
    progress: Progress | None = None  #: None: no host has reported progress
    physical: tuple[str, ...] = ()
    idle: float | None = None
    running_at: float | None = None  #: None: stored already, or the program did not run
    detail: str = ""
    everywhere: bool = False
    last_error: Proof | None = None
    warnings: Warnings | None = None  #: None: no host has reported


@dataclass(frozen=True, slots=True)
class Code:
    """The git state of the folder of a job's code at its submission."""

    commit: str
    branch: str = ""  #: empty: detached HEAD
    dirty: bool = False  #: the files differ from the commit
    #: object path of the diff to the commit, cut at a size; empty: no tracked file differs
    diff: str = ""


@dataclass(frozen=True, slots=True)
class IdlePeriod:
    """The time from the end of a job until a person resumed it."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Grant:
    """Chips that a programme such as the TPU Research Cloud pays for."""

    generation: str  #: such as `v4`
    zone: str
    pricing: str
    chips: int


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """What was known of a job with a deadline when it was submitted; times in seconds."""

    work: float  #: steps of the whole job
    start: float  #: from a ready slice to the first step; nine of ten starts take no more
    wait: float  #: for a slice that cannot be preempted, refusals included; nine of ten waits take no more
    lost: float  #: steps that the loss of a slice costs
    steps: int | None = None  #: of the whole job, by its file; None: unknown


@dataclass(frozen=True, slots=True)
class Edge:
    """A condition on another job or group that must hold before the job's first slice is requested."""

    job: str  #: id of the other job
    on: Literal["success", "end", "failure", "start"] = "success"
    each: bool = False  #: each element waits for the element of the same index in the other group


@dataclass(frozen=True, slots=True)
class Job:
    """A job: spec, state, counters and version. Only `domain/lifecycle.py` changes the state of a job."""

    id: str  #: `000042`
    name: str
    user: str
    spec: JobSpec  #: as submitted, every default filled in; never changes
    state: State
    desired: DesiredState
    created_at: float
    state_since: float
    version: int = 1
    wake: float = 0.0  #: no slice is requested and no program started before this
    bucket: str = ""  #: `gs://…` of the first offer; has the code bundles
    buckets: Mapping[str, str] = field(default_factory=dict[str, str])  #: by region of its offers
    bundles: tuple[str, ...] = ()  #: object paths below the bucket, unpacked in order
    code: Code | None = None  #: None: no code is shipped, or its folder is no git checkout
    slices: tuple[Slice, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    retries_used: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  #: retry budgets used, by name
    #: the state after RELEASING; QUEUED while a program runs: the job is being requeued
    next_state: State | None = None
    #: end of the hold: in HOLDING, and in RELEASING while the slice is kept for another job
    hold_until: float | None = None
    wipe_checkpoints: bool = False  #: `clean` also removes the checkpoints
    stopped: bool = True  #: in HOLDING: every host has confirmed that the program is gone
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""  #: the reason for its state, in one line for people
    finished_at: float | None = None
    fresh_at: float = 0.0  #: when a person last resumed it after its end
    idle_periods: tuple[IdlePeriod, ...] = ()
    grants: tuple[Grant, ...] = ()  #: grants of the context at its submission
    #: its budget in micro-dollars, as last set after its submission; None: the spec's
    spend_limit: int | None = None
    #: the budget for which the warning of 80 % was stored
    warned_limit: int | None = None
    data: tuple[Dataset, ...] = ()  #: data sets, with their places in each region of its offers
    copies: tuple[Copy, ...] = ()  #: copies of data for this job, finished or not
    owner: str = ""  #: a `Principal.id`; empty: no owner
    folder: str = ""  #: the owner's folder in each bucket; empty: the bucket's root
    #: random part of the names of its workdir and slices, so that it shares none with a job of the same id of a lost
    #: store; empty: only its id tells it from others
    suffix: str = ""
    #: the jobs of `spec.after`, whose names were resolved at its submission
    edges: tuple[Edge, ...] = ()
    held_by: str = ""  #: name of the person who holds it in the queue; empty: not held
    queued_at: float = 0.0  #: when a person last released or requeued it
    rank: int = 0  #: order among its owner's jobs of one priority; the largest is first
    group: str = ""  #: id of its group; empty: not an element
    index: int | None = None  #: index in its group, from 0
    #: parameters of the element, by name, as filled into its spec
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""  #: what people noted about it, one line
    tags: tuple[str, ...] = ()  #: sorted
    submitted: int = 0  #: of a group: number of elements made so far
    #: number of elements, of a group and of each of its elements
    group_size: int = 0
    expected: ExpectedRun | None = None  #: None: it has no deadline
    missed_at: float | None = None  #: when its deadline was seen to be missed
    schema_version: int = SCHEMA_VERSION

    def workdir_in(self, bucket: str) -> str:
        folder = f"{self.id}-{self.suffix}" if self.suffix else self.id
        return f"{owner_folder(bucket or self.bucket, self.folder)}/jobs/{folder}"

    def workdir_of(self, attempt: int) -> str:
        """Return the workdir of that attempt; of the newest one if there is no such attempt."""
        if not 0 < attempt <= len(self.attempts):
            return self.workdir
        name = self.attempts[attempt - 1].slice
        return self.workdir_in(next((s.bucket for s in self.slices if s.name == name), ""))

    @property
    def workdir(self) -> str:
        """The workdir of the newest attempt; before the first one, in the bucket of the first offer."""
        return self.workdir_of(len(self.attempts)) if self.attempts else self.workdir_in("")

    @property
    def workdirs(self) -> tuple[str, ...]:
        """All workdirs to which attempts, or copies for them, have written. Candidates run no program."""
        used = [self.bucket, *(s.bucket for s in self.slices if s.role is not SliceRole.CANDIDATE)]
        used += [self.buckets.get(c.region, "") for c in self.copies if c.saved]
        return tuple(dict.fromkeys(map(self.workdir_in, used)))

    @property
    def submitter(self) -> str:
        """The owner in the queue; of a job without owner, its user."""
        return self.owner or self.user

    @property
    def tpu_slices(self) -> int:
        """The number of TPU slices that one request asks for."""
        return self.spec.tpu.slices

    @property
    def slice(self) -> Slice | None:
        """The serving slice: requested and not yet confirmed gone."""
        for slice in reversed(self.slices):
            if slice.gone_at is None and slice.role is SliceRole.SERVING:
                return slice
        return None

    @property
    def failed_requests(self) -> list[Slice]:
        """The requests without a slice since the job last had one, or was last resumed; the oldest first. Of candidates
        only those that the cloud has refused since then."""
        unready = takewhile(
            lambda s: s.ready_at is None and s.requested_at >= self.fresh_at, reversed(self.slices)
        )
        newest_first = [*unready]
        earlier = self.slices[: len(self.slices) - len(newest_first)]
        had_at = (earlier[-1].ready_at or 0.0) if earlier else 0.0
        return [
            s
            for s in reversed(newest_first)
            if s.role is not SliceRole.CANDIDATE or (s.refused and s.requested_at >= had_at)
        ]

    @property
    def hosts(self) -> int:
        """The number of hosts of the serving slice; 0 while it is not ready."""
        return len(self.slice.endpoints) if self.slice else 0

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, ended or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def condemned(self) -> tuple[Slice, ...]:
        """The condemned slices that are not yet confirmed gone."""
        return tuple(s for s in self.slices if s.role is SliceRole.CONDEMNED and s.gone_at is None)

    @property
    def candidates(self) -> tuple[Slice, ...]:
        """The candidates that may still serve, the preferred one first."""
        return tuple(s for s in self.beside if s.role is SliceRole.CANDIDATE and s.lost_at is None)

    @property
    def losers(self) -> tuple[Slice, ...]:
        """The candidates that lost, and are not yet confirmed gone."""
        return tuple(s for s in self.beside if s.lost_at is not None)

    @property
    def beside(self) -> tuple[Slice, ...]:
        """All slices beside the serving one that are not yet confirmed gone."""
        return tuple(
            s for s in self.slices if s.role is not SliceRole.SERVING and s.gone_at is None
        )

    @property
    def newest_slice(self) -> Slice | None:
        """The newest slice that served or was requested to serve."""
        return next((s for s in reversed(self.slices) if s.role is not SliceRole.CANDIDATE), None)


class Standing(StrEnum):
    """Whether an accusation counts."""

    OPEN = "open"  #: nothing contradicts it, and nothing proves it
    PROVED = "proved"  #: by wrong numbers of the device, or as the same program went on elsewhere
    REFUTED = "refuted"  #: the program fails in the same way on other machines


@dataclass(frozen=True, slots=True)
class Accusation:
    """What an attempt holds against the machine of a host."""

    job: str
    attempt: int
    owner: str
    #: names of the program's code: programs of one owner that share a name count as the same
    program: tuple[str, ...]
    zone: str  #: of the machine
    standing: Standing
    weight: float
    text: str  #: what was seen, in one line
    at: float

    @property
    def op_id(self) -> str:
        return f"{self.job}:{self.attempt}:{self.standing}"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A physical machine that is accused, or pinned by a person."""

    physical: str
    zone: str
    updated_at: float
    pinned: Literal["", "good", "bad"] = ""  #: set by a person; overrides the accusations
    #: one of an attempt, oldest first; `domain/failures/host_reputation.py` says which of them count
    accusations: tuple[Accusation, ...] = ()
