"""Shapes of `JobsApi`: the same dictionaries in process, over HTTP and under `--json`.

Shapes alone: `service/views.py` makes them from records, and the OpenAPI page shows them. Times are RFC 3339 in UTC. A
field that is NotRequired is always sent, but a deployed backend that is older than the field lacks it: read it with
`.get`, and leave out the text about it.
"""

from typing import Any, Literal, NotRequired

# pydantic reads `typing.TypedDict` from Python 3.12 on only
from typing_extensions import TypedDict

from tpujob.api.cost_shapes import DeadlineView, SpendingView
from tpujob.api.job_shapes import ActionView, CopyView, DataView, HostView, RefusedView, SpanView
from tpujob.api.queue_shapes import PlaceView


class EventView(TypedDict):
    seq: int
    kind: str
    at: str  #: RFC 3339, UTC
    state: str
    text: str
    by: str  #: the user who requested it; empty: the backend acted by itself


class SliceJobView(TypedDict):
    """A job that has had a slice."""

    id: str
    name: str
    seconds: float  #: for which the job has had the slice
    now: bool  #: the job has the slice now


class SliceView(TypedDict):
    name: str
    type: str
    tpu_slices: int  #: number of TPU slices, all of that type
    zone: str
    pricing: str
    role: str
    usd_per_hour: float | None
    usd: float | None  #: so far
    free: NotRequired[bool]  #: the cloud preempted it in its first minute
    #: the part of `usd` after the last moment that is certain; absent: all of it is certain
    unsure_usd: NotRequired[float]
    requested_at: str
    ready_at: str | None
    gone_at: str | None
    #: when the cloud takes it back, as is known before; absent: at no time that is known
    ends_at: NotRequired[str]
    reason: str  #: why it was, or is being, given back
    hosts: list[str]  #: addresses, by host number
    #: why the hosts' keys are trusted: `published` through the cloud, or seen at the `first-contact`; empty: not yet
    host_keys: NotRequired[str]
    #: of a slice that was handed on: the jobs that have had it, the oldest first, some before and after this job
    jobs: NotRequired[list[SliceJobView]]


class VerdictView(TypedDict):
    """The source of a number that is not finite."""

    step: int | None
    host: int | None
    device: str
    #: `device`, `data` or `model`; empty: unknown
    blame: str
    text: str


class NonfiniteView(TypedDict):
    """The newest loss of a program is not finite."""

    loss: str  #: `NaN`, `inf` or `-inf`; `not finite`: a line of output matched `watch.nonfinite`
    since: int | None  #: the first step with such a loss since the last finite one
    host: int | None  #: that reports it, where the loss of another host is finite
    text: str  #: the same in words


class UnreachedView(TypedDict):
    """A host that got no answer from another one of its slice, as when a firewall is between them."""

    source: int
    target: int
    port: int  #: of TCP


class ProofView(TypedDict):
    """A line that proves why an attempt ended."""

    host: int | None  #: None: it is about several hosts
    text: str


class AttemptView(TypedDict):
    number: int
    slice: str
    started_at: str
    running_at: str | None
    ended_at: str | None
    outcome: str | None
    cause: str | None
    host: int | None
    message: str
    evidence: list[ProofView]
    last_error: NotRequired[ProofView | None]  #: in its last lines, although it ended with 0
    physical: list[str]  #: the machines below its hosts, by host; empty where they are not known
    verdict: VerdictView | None  #: of numbers that are not finite
    unreached: NotRequired[UnreachedView | None]
    step: int | None
    checkpoint: int | None  #: that this attempt committed
    resumed_from: int | None  #: as its program says
    first_step: NotRequired[int | None]
    redone: NotRequired[int | None]  #: steps of it that do not count; None: not known
    versions: dict[str, str]  #: python, jax, jaxlib, libtpu, as far as known


class IgnoredView(TypedDict):
    """Objects in the place of the newest attempt's reports that were ignored, as far as backends reported."""

    unverified: int  #: not signed by its hosts, or about something else
    replayed: int  #: signed, and older than what was heard before


class SecretView(TypedDict):
    """A secret of the caller. No method returns its value."""

    name: str
    set_at: str | None  #: None: not known


class Checkout(TypedDict):
    """The checkout whose files are shipped, as its owner's machine says."""

    commit: str
    branch: str
    dirty: bool
    diff: str  #: from the commit to what is shipped, cut at a size


class CodeView(TypedDict):
    """The stored code of a job."""

    commit: str
    branch: str
    dirty: bool
    diff: str  #: object path of the diff; empty: there is none


class PatchView(TypedDict):
    """The diff that was shipped beside a commit."""

    code: CodeView
    text: str  #: a unified diff, from the commit to what was shipped; cut at a size


class ChangeView(TypedDict):
    """One key that differs. None: that side lacks the key."""

    key: str
    a: Any
    b: Any


class FileChangeView(TypedDict):
    path: str
    change: str  #: `added`, `removed`, `changed`, `mode`; as seen from a to b
    diff: str  #: unified; empty where the file is no text, or too much was shown already


class DiffSide(TypedDict):
    id: str
    name: str
    state: str
    code: CodeView | None
    bundles: list[str]


class DiffView(TypedDict):
    """The differences between two jobs."""

    a: DiffSide
    b: DiffSide
    spec: list[ChangeView]
    outcome: list[ChangeView]
    files: list[FileChangeView]
    files_unknown: str  #: why the files could not be compared; empty: they were
    cut: bool  #: not every diff is shown


NextAction = Literal[
    "copy_data",
    "request_slice",
    "get_slice",
    "start_program",
    "finish",
    "stop_program",
    "withdraw_request",
    "release_slice",
    "end",
    "remove_record",
    "nothing",
]


class CommandView(TypedDict):
    command: str  #: as it is typed
    does: str


class NextView(TypedDict):
    """The next step of a job, by itself or by a command."""

    action: NextAction
    at: str | None  #: when, where that is known
    text: str
    commands: list[CommandView]  #: what a person can do instead


class BudgetView(TypedDict):
    """Retries of one kind. A job whose budget is used up ends at the next failure of that kind."""

    name: str
    used: int
    left: int | None  #: None: without bound
    limit: int | None


class CapacityView(TypedDict):
    """A wait for hardware that the cloud has refused."""

    cause: str  #: STOCKOUT or QUOTA
    #: what was refused last, as is the zone
    type: str
    zone: str
    refusals: int  #: in a row, for that cause, of that type in that zone
    since: str
    answer: str  #: of the cloud
    asking: str  #: the zone that is asked now; empty: none
    again_at: str  #: when the same is asked for again
    first_type: str  #: what is asked for first, there or elsewhere
    first_zone: str
    first_at: str


class MaintenanceView(TypedDict):
    """A maintenance of a job's hosts, announced up to a week ahead. It has no effect before its notice."""

    starts: str
    ends: str | None
    latest: str | None  #: until when the start may be moved
    kind: str  #: SCHEDULED or UNSCHEDULED, in the cloud's words
    status: str  #: PENDING or ONGOING


class JobFacts(TypedDict):
    """Facts of a job that its view and its row in a list share."""

    id: str
    name: str
    user: str
    state: str
    desired: str
    trouble: str  #: the failure that is being retried, in one line; empty: none
    outcome: str | None
    cause: str | None
    type: str
    tpu_slices: int  #: more than one: Multislice
    chips: int  #: of all of them, as are the hosts
    hosts: int
    zone: str
    pricing: str
    usd_per_hour: float | None  #: what is billed now, condemned slices included; 0 without a slice
    usd_spent: float | None
    condemned: list[str]  #: slices that were swapped out as bad and are not gone yet
    candidates: list[str]  #: requests beside the serving one: the first that is ready serves
    host0_ip: str
    attempt: int  #: number of the newest; 0: none yet
    phase: str
    step: int | None
    steps: int | None
    loss: float | None  #: None also where it is not finite
    nonfinite: NotRequired[NonfiniteView | None]  #: None: the newest known loss is finite
    found: NotRequired[bool]  #: step, steps and loss were found in the output, without a pattern
    checkpoint: int | None
    version: int
    created_at: str
    state_since: str
    finished_at: str | None
    note: NotRequired[str]  #: what people noted about it; empty: nothing
    tags: NotRequired[list[str]]  #: sorted
    group: NotRequired[str]  #: id of the array or sweep that it is an element of; empty: of none
    index: NotRequired[int | None]  #: in that group
    group_size: NotRequired[int]  #: jobs of that group, or of the one that it is itself; else 0
    #: of an array or a sweep: the jobs that it has made, by state
    elements: NotRequired[dict[str, int]]


class BestView(TypedDict):
    """The element of an array or a sweep whose last loss is the lowest."""

    id: str
    name: str
    loss: float
    params: dict[str, str]


class ElementView(TypedDict):
    """An element that needs a look."""

    id: str
    name: str
    state: str
    cause: str | None
    why: str


class JobView(JobFacts):
    message: str  #: why it is in its state; `trouble` is not in it
    why: NotRequired[str]  #: the same, or what it waits for just now
    next: NotRequired[NextView]
    trouble_since: str | None
    waiting: str  #: `capacity` in one line; empty: it waits for none
    capacity: NotRequired[CapacityView | None]
    copying: NotRequired[CopyView | None]  #: None: it waits for no copy
    place: NotRequired[PlaceView | None]  #: in the queue; None: it does not wait for a slice
    usd_copies: NotRequired[float]  #: of all copies that were made for it, by list price
    maintenance: NotRequired[MaintenanceView | None]  #: None: none is announced
    ignored: NotRequired[IgnoredView | None]  #: None: every report was believed
    warnings: NotRequired[list[str]]  #: of its newest attempt, which continues in spite of them
    topology: str  #: of one of them
    system_image: str
    steps_per_s: NotRequired[float | None]  #: as the program says, or as its steps were seen to go
    left_s: NotRequired[float | None]  #: until its last step, at that rate
    progress_at: str | None  #: when the step last changed, as far as is known; while it runs
    #: seconds without progress after which it hangs, while it runs; None: never
    stall_s: float | None
    metrics: dict[str, float | None]  #: None: not finite
    workdir: str
    bundles: list[str]  #: object paths of what is shipped, laid over each other in this order
    code: CodeView | None  #: None: nothing is shipped, or it comes from no checkout
    hold_until: str | None
    wake_at: str | None  #: when the next try is due, while one is waited for
    spending: NotRequired[list[SpendingView]]  #: its budgets of money, its own first
    deadline: NotRequired[DeadlineView | None]  #: None: it has none
    retries_used: dict[str, int]  #: retry budgets used, by name
    #: those that `recovery` bounds, and others that were used
    budgets: NotRequired[list[BudgetView]]
    slices: list[SliceView]
    attempts: list[AttemptView]
    spec: dict[str, Any]
    actions: NotRequired[list[ActionView]]  #: what the caller can do with it now
    refused: NotRequired[list[RefusedView]]  #: what not, and why
    timeline: NotRequired[list[SpanView]]  #: its time, oldest first
    on_hosts: NotRequired[list[HostView]]  #: of the slice that serves it
    #: it runs on the emulator: dollars are list prices, and nothing is paid
    emulated: NotRequired[bool]
    params: NotRequired[dict[str, str]]  #: of an element: its row of the matrix
    worst: NotRequired[list[ElementView]]  #: of a group: some that failed
    best: NotRequired[BestView | None]  #: of a group; None: no element has reported a loss


class RefusalView(TypedDict):
    message: str
    hint: str  #: what to do; empty: nothing is known that helps


class PlanView(TypedDict):
    """The plan of a job, as `create --dry-run` prints it."""

    name: str
    type: str
    generation: str
    tpu_slices: int  #: more than one: Multislice
    chips: int  #: of all of them, as is what follows but the topology
    hosts: int
    topology: str
    zone: str
    zones: list[str]
    pricing: str
    system_image: str
    usd_per_hour: float | None
    hbm_gib: int
    peak_bf16_tflops: float
    bucket: str
    command: str
    environment: str  #: what it runs in, in words; empty: the host as it is
    mounts: list[str]  #: in words
    data: NotRequired[list[DataView]]
    refused: NotRequired[list[RefusalView]]  #: for what `create` refuses the job as things are now
    warnings: list[str]  #: what is allowed, and may surprise later
    spec: dict[str, Any]
    #: of an array or a sweep: the jobs that it makes, and how many of them may have a slice at once; what is above is
    #: of each of them
    elements: NotRequired[int]
    at_once: NotRequired[int]


class HostAccess(TypedDict):
    """The address and keys with which `tpujob ssh` reaches one host."""

    host: int
    address: str
    port: int
    user: str
    certificate: str  #: of the caller's key, as `ssh-keygen` writes it
    expires_at: str  #: after which no session can be opened with it; one that is open goes on
    host_keys: list[str]  #: what is pinned for this host, as lines of a known_hosts file
    instance: str  #: how IAP calls the host; empty: it is reached at its address
    zone: str
    project: str
