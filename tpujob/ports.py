"""The ports: everything that touches the world, as the smallest protocol that serves its caller.

Every call takes `timeout`, in seconds, and returns or raises by then. Adapters raise `Transient` (may succeed later;
nothing is known) or `Refused` (a clear no), never a vendor's own error. The views at the end are what `JobsApi`
returns in process, over HTTP and under `--json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from tpujob.domain.model import Event, HostPlan, Job, Slice, SliceSeen, Suspect


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def sleep(self, seconds: float) -> None: ...


# Store ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act on one job until `until`. `token` grows with every lease of that job."""

    job_id: str
    owner: str
    token: int
    until: float


class Store(Protocol):
    """Keeps jobs and events. Holds no rules: it compares a version and writes."""

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        """Store a new job (its `id` is ignored and assigned here) with its first event.
        The same non-empty key gives back the job of the first call and stores nothing."""
        ...

    def get(self, job_id: str) -> Job:
        """Raises NotFound; StoreError when its record is damaged."""
        ...

    def peek(self, job_id: str) -> Job:
        """As `get`, but perhaps as it was a moment ago, where that is cheaper. Enough to decide on, as a commit
        compares the version; not to act on without a commit."""
        ...

    def list(self, *, user: str = "", name: str = "", live: bool | None = None) -> list[Job]:
        """Jobs, newest first. `live`: True: not in a final state; False: in one; None: both.
        Those whose record is damaged are left out: whoever concludes something from a job's absence asks
        `damaged()` too."""
        ...

    def commit(
        self,
        job: Job,
        event: Event | None,
        *,
        expected_version: int,
        op_id: str,
        lease: Lease | None,
    ) -> Job:
        """Write `job` as version `expected_version + 1` and append `event`, whole or not at all; returns it as stored.
        A repeat with the same `op_id` returns what the first call stored. Raises Conflict when the version differs,
        Fenced when `lease` is given and a newer one exists, NotFound."""
        ...

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        """Events with `seq > after`, oldest first. Raises NotFound."""
        ...

    def remove(self, job_id: str, *, lease: Lease | None) -> None:
        """Remove the record and its events. Absent is success. Raises Fenced."""
        ...

    def lease(self, job_id: str, owner: str, *, ttl: float, now: float) -> Lease | None:
        """A new lease, or None while somebody else's is in force. The same owner gets a new, higher token."""
        ...

    def release(self, lease: Lease) -> None:
        """End a lease early. No error if it is no longer in force."""
        ...

    def due(self, now: float) -> list[str]:
        """Ids of the jobs whose `wake` has come, the longest overdue first; final jobs with nothing to do are not.
        Perhaps as it was a moment ago."""
        ...

    def next_wake(self) -> float | None:
        """When the next job is due; None: never."""
        ...

    def changes(self, after: int) -> tuple[int, list[str]]:
        """The newest change number, and the ids of jobs changed after `after` (removed ones included). Cheap."""
        ...

    def follow(self, changed: Callable[[], None]) -> Callable[[], None] | None:
        """From now on call `changed`, from a thread of the store's own, soon after any commit of any process, until
        the function that this returns is called. A hint may come late, twice or, after an outage, not at all.
        None: this store cannot tell; ask `changes` from time to time."""
        ...

    def close(self) -> None:
        """End what follows, and let go of files and connections; the store still works afterwards."""
        ...

    def damaged(self) -> list[tuple[str, str]]:
        """Ids of the jobs whose record cannot be read, each with the reason. `list` and `due` leave them out."""
        ...

    def zones(self) -> list[str]:
        """Every zone in which a slice was ever asked for, also by jobs that are removed by now."""
        ...

    def accuse(
        self,
        physicals: Sequence[str],
        *,
        zone: str,
        weight: float,
        reason: str,
        op_id: str,
        at: float,
    ) -> None:
        """Add `weight` to the score of each of these machines, faded to `at` first (`domain/suspects.py`), and keep
        the reason. Once for each `op_id`: a repeat changes nothing."""
        ...

    def suspects(self) -> list[Suspect]:
        """Every machine that has a score or is pinned, the highest score first."""
        ...

    def put_suspect(self, suspect: Suspect) -> None:
        """Write this record over what there is of that machine."""
        ...

    def remove_suspect(self, physical: str) -> None:
        """Forget score, pin and reasons; the accusations behind them do not come back. Absent is success."""
        ...


# Slices --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """A cloud resource that carries our label."""

    name: str
    zone: str
    job_id: str
    created_at: float
    detail: str = ""
    type: str = ""  #: empty: not told
    pricing: str = ""  #: `spot`, `on-demand` or `reserved`; empty: not told
    tpu_slices: int = 1  #: that it consists of, all of that type


class Slices(Protocol):
    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        """What the cloud says of it now. Never raises: what could not be seen is Unknown."""
        ...

    def create(self, slice: Slice, *, job_id: str, public_key: str, timeout: float) -> None:
        """Ask for it; returns when the request is accepted, not when the slice is ready. One that exists and carries
        our labels is adopted. Raises Transient, or Refused with its cause."""
        ...

    def delete(self, slice: Slice, *, timeout: float) -> None:
        """Ask for its end, node and queued resource; returns when that is accepted. Absent is success.
        Raises Transient, Refused."""
        ...

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        """Everything in those zones that carries our label, whatever its state. Raises Transient, Refused."""
        ...


# Hosts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guest:
    """What a host says of itself through the cloud, so that it is known before the first contact."""

    name: str = ""  #: of its machine; empty: it does not say
    host_keys: frozenset[tuple[str, str]] = frozenset()  #: type, and key in base64


class Hosts(Protocol):
    def public_key(self, slice: Slice) -> str:
        """The OpenSSH public key of the slice's own key pair, made on the first call. Safe to repeat."""
        ...

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        """Bring every host to its plan: all or none. Returns when every agent has accepted; safe to repeat.
        No program is started before every host answers. Raises Transient (naming the hosts that did not answer),
        HostKeyChanged, or Refused with cause SETUP."""
        ...

    def stop(self, slice: Slice, *, grace: float, timeout: float) -> None:
        """SIGTERM, up to `grace` seconds, SIGKILL, on every host at once; devices are free afterwards. Safe to repeat.
        Raises Transient, HostKeyChanged."""
        ...

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        """The hosts that carried out a command over SSH within `timeout`, all asked at once. Never raises."""
        ...

    def forget(self, slice: Slice) -> None:
        """Remove the slice's keys and pinned host keys, and close its connections. Safe to repeat."""
        ...

    def kept(self) -> list[str]:
        """Names of the slices that there are keys for. Raises Transient."""
        ...


# Blobs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blob:
    path: str  #: `gs://bucket/…`
    size: int
    generation: int
    updated: float  #: by the storage's clock
    metadata: Mapping[str, str]


class Blobs(Protocol):
    """Objects by `gs://` path."""

    def put(
        self,
        path: str,
        data: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        if_generation: int | None = None,
        timeout: float,
    ) -> Blob:
        """Write whole or not at all. `if_generation`: 0: only if absent; n: only over that one.
        Raises Conflict when that does not hold."""
        ...

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        """The bytes from `start` up to, not including, `end`. Raises NotFound."""
        ...

    def list(self, prefix: str, *, after: str = "", timeout: float) -> list[Blob]:
        """Every object whose path starts with `prefix` and sorts after `after`, by path, with its metadata."""
        ...

    def delete(self, path: str, *, timeout: float) -> None:
        """Absent is success."""
        ...

    def clock(self, *, timeout: float) -> float:
        """The storage's own time, so that ages are computed on one clock."""
        ...

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        """Afterwards `gs://name` exists, in that region. Raises Refused when it lies in another one."""
        ...

    def region(self, bucket: str, *, timeout: float) -> str:
        """Where the bucket of this `gs://` path lies: a region, or a continent such as `us`, in small letters. Raises
        NotFound; Refused when it is somebody else's."""
        ...


# The way in ----------------------------------------------------------------------------------------------------------


class EventView(TypedDict):
    seq: int
    kind: str
    at: str  #: RFC 3339, UTC
    state: str
    text: str


class SliceView(TypedDict):
    name: str
    type: str
    tpu_slices: int  #: that it consists of, all of that type
    zone: str
    pricing: str
    role: str
    usd_per_hour: float | None
    usd: float | None  #: so far
    requested_at: str
    ready_at: str | None
    gone_at: str | None
    reason: str  #: why it was, or is being, given back
    hosts: list[str]  #: addresses, by host number


class VerdictView(TypedDict):
    """Where a number that is not finite came from."""

    step: int | None
    host: int | None
    device: str
    blame: str  #: `device`, `data` or `model`; empty: nobody knows
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
    evidence: list[str]  #: the lines that prove the cause, each with its host
    physical: list[str]  #: the machines below its hosts, by host; empty where they are not known
    verdict: VerdictView | None  #: of numbers that are not finite
    step: int | None
    checkpoint: int | None
    resumed_from: int | None
    versions: dict[str, str]  #: python, jax, jaxlib, libtpu, as far as known


class CodeGiven(TypedDict):
    """Where the checkout stands whose files are shipped, as its owner's machine says."""

    commit: str
    branch: str
    dirty: bool
    diff: str  #: from the commit to what is shipped, cut at a size


class CodeView(TypedDict):
    """What `CodeGiven` became."""

    commit: str
    branch: str
    dirty: bool
    diff: str  #: object path of the diff; empty: there is none


class ChangeView(TypedDict):
    """One key that differs. None: it is not there."""

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
    """What differs between two jobs."""

    a: DiffSide
    b: DiffSide
    spec: list[ChangeView]
    outcome: list[ChangeView]
    files: list[FileChangeView]
    files_unknown: str  #: why the files could not be compared; empty: they were
    cut: bool  #: not every diff is shown


class JobView(TypedDict):
    id: str
    name: str
    user: str
    state: str
    wish: str
    message: str  #: why it stands where it stands
    trouble: str  #: what is in the way just now and is tried again, in one line; empty: nothing
    trouble_since: str | None
    waiting: str  #: for capacity: how often refused, where, since when, what is tried next; empty: it is not
    outcome: str | None
    cause: str | None
    type: str
    tpu_slices: int  #: more than one: Multislice
    chips: int  #: of all of them, as are the hosts
    hosts: int
    topology: str  #: of one of them
    zone: str
    pricing: str
    runtime_version: str
    usd_per_hour: float | None  #: what is billed now, condemned slices included; 0 without a slice
    usd_spent: float | None
    condemned: list[str]  #: slices that were swapped out as bad and are not gone yet
    host0_ip: str
    attempt: int  #: number of the newest; 0: none yet
    phase: str
    step: int | None
    steps: int | None
    progress_at: str | None  #: when the step last changed, as far as is known; while it runs
    stall_s: (
        float | None
    )  #: seconds without progress after which it hangs, while it runs; None: never
    loss: float | None
    checkpoint: int | None
    metrics: dict[str, float]
    workdir: str
    bundles: list[str]  #: object paths of what is shipped, laid over each other in this order
    code: CodeView | None  #: None: nothing is shipped, or it comes from no checkout
    version: int
    created_at: str
    state_since: str
    finished_at: str | None
    hold_until: str | None
    wake_at: str | None  #: when the next try is due, while one is waited for
    spent: dict[str, int]  #: retry budgets used, by name
    slices: list[SliceView]
    attempts: list[AttemptView]
    spec: dict[str, Any]


class PlanView(TypedDict):
    """What `create --dry-run` prints."""

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
    runtime_version: str
    usd_per_hour: float | None
    hbm_gib: int
    peak_bf16_tflops: float
    bucket: str
    command: str
    environment: str  #: what it runs in, in words; empty: the host as it is
    mounts: list[str]  #: in words
    warnings: list[str]  #: what is allowed, and may surprise later
    spec: dict[str, Any]


class LogLine(TypedDict):
    host: int
    at: str
    text: str


class LogPage(TypedDict):
    lines: list[LogLine]
    cursor: str  #: pass it back for what comes after
    done: bool  #: nothing more will come


class HostAccess(TypedDict):
    """What `tpujob ssh` needs to reach one host."""

    host: int
    address: str
    port: int
    user: str
    key_file: str  #: on the backend's machine; empty: the key is kept elsewhere
    key_secret: str  #: the secret that holds the key, in Google Secret Manager; empty: none
    host_keys: list[str]  #: what is pinned for this host, as lines of a known_hosts file
    instance: str  #: how IAP calls the host; empty: it is reached at its address
    zone: str
    project: str


class SuspectView(TypedDict):
    """What `tpujob hosts` shows of a machine."""

    physical: str
    zone: str
    score: float  #: faded to now
    refused: bool  #: programs are kept off it
    pinned: str  #: empty, `good` or `bad`
    reasons: list[str]
    updated_at: str


class LeakView(TypedDict):
    """Something in the cloud that carries our label and that no job claims."""

    name: str
    zone: str
    job: str
    age_s: float
    usd_per_hour: float | None  #: None: the type is not known any more
    detail: str


class SweptView(TypedDict):
    """What `tpujob sweep` did, or would do, in every zone of the context."""

    deleted: list[LeakView]  #: asked to end
    kept: list[LeakView]  #: so young that a job may just be about to claim it
    failed: list[LeakView]  #: could not be asked to end; `detail` says why
    keys: list[str]  #: names of slices that are gone, whose keys were removed


class BrokenView(TypedDict):
    """A rule that does not hold of a record (`domain/invariants.py`)."""

    rule: str
    job: str
    text: str


class JobsApi(Protocol):
    """The way in, the same in process (`jobs.py`) and over HTTP (`adapters/remote.py`).

    `job` is an id (`000042` or `42`) or a name; a name must be unique among jobs that are not final, or else among
    all. Raises NotFound, BadSpec, BadRequest, IllegalInState."""

    def plan(self, spec: Mapping[str, Any]) -> PlanView:
        """What `create` would do, resolved; nothing is stored."""
        ...

    def put_bundle(self, sha256: str, data: bytes, *, bucket: str) -> str:
        """Store an archive by its hash, once; returns its object path. Raises BadRequest when the hash differs."""
        ...

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        user: str,
        bundles: Sequence[str] = (),
        code: CodeGiven | None = None,
        idempotency_key: str = "",
    ) -> JobView: ...

    def list(self, *, user: str = "", all: bool = False) -> list[JobView]:
        """Jobs, newest first, without `attempts`, `slices` and `spec` filled; final ones only with `all`."""
        ...

    def get(self, job: str) -> JobView: ...

    def events(self, job: str, *, after: int = 0) -> list[EventView]: ...

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage: ...

    def diff(self, a: str, b: str) -> DiffView:
        """What differs between two jobs: spec, outcome, and the files of their bundles."""
        ...

    def cancel(self, job: str, *, release: bool = False) -> JobView: ...

    def resume(self, job: str) -> JobView: ...

    def delete(self, job: str) -> JobView: ...

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView: ...

    def access(self, job: str, *, host: int = 0) -> HostAccess:
        """Raises IllegalInState when the job has no slice that can be reached."""
        ...

    def hosts(self) -> list[SuspectView]:
        """Machines that are suspected of wrong numbers, or pinned, the worst first."""
        ...

    def pin_host(self, physical: str, verdict: str) -> SuspectView:
        """Call a machine `good` (never refused) or `bad` (always refused) whatever its score; empty takes that back.
        Raises BadRequest."""
        ...

    def clear_host(self, physical: str) -> None:
        """Forget what is held against a machine. Raises NotFound."""
        ...

    def leaks(self) -> list[LeakView]:
        """What is billed and owned by nobody, the oldest first, in every zone that a job of ours ever used.
        Raises Transient when a zone cannot be listed: an empty list means that there is nothing."""
        ...

    def sweep(self, *, dry_run: bool = False) -> SweptView:
        """Ask for the end of everything that `leaks` lists and that is older than some minutes, and remove the keys of
        slices that are gone. `dry_run`: only say so. Safe to repeat. Raises Transient, with nothing done, when a zone
        cannot be listed."""
        ...

    def fsck(self) -> list[BrokenView]:
        """Every rule that does not hold of a record or its history; an empty list means that all do."""
        ...

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        """Yields at once, then whenever that job (or any) may have changed, at the latest after `timeout`."""
        ...
