"""The ports: everything that touches the world, as the smallest protocol that serves its caller.

Every call takes `timeout`, in seconds, and returns or raises by then. Adapters raise `Transient` (may succeed later;
nothing is known) or `Refused` (a clear no), never a vendor's own error. What a user can ask of the service is in
`api/jobs_api.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from tpujob.domain.actions import HostPlan
from tpujob.domain.copies import Copy, CopyProgress
from tpujob.domain.events import Event
from tpujob.domain.members import Member
from tpujob.domain.model import Job, Slice, Suspect
from tpujob.domain.observations import SliceSeen


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
        """As `get`, but perhaps a moment old, where that is cheaper. Good enough to decide on, since a commit compares
        the version; not to act on without a commit."""
        ...

    def list(self, *, user: str = "", name: str = "", live: bool | None = None) -> list[Job]:
        """Jobs, newest first. `live`: True: not in a final state; False: in one; None: both.
        Jobs with a damaged record are left out: before concluding anything from a job's absence, ask `damaged()`."""
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
        """Ids of the jobs whose `wake` has passed, the longest overdue first; without final jobs that have nothing left
        to do. May be a moment old."""
        ...

    def changes(self, after: int) -> tuple[int, list[str]]:
        """The newest change number, and the ids of jobs changed after `after` (removed ones included). Cheap."""
        ...

    def follow(self, changed: Callable[[], None]) -> Callable[[], None] | None:
        """Call `changed`, from a thread of the store's own, soon after any commit by any process, until the returned
        function is called. A hint may come late, twice or, after an outage, not at all. None: this store cannot tell;
        poll `changes` instead."""
        ...

    def close(self) -> None:
        """Stop followers and close files and connections; the store still works afterwards."""
        ...

    def damaged(self) -> list[tuple[str, str]]:
        """Ids of the jobs whose record cannot be read, each with the reason. `list` and `due` leave them out."""
        ...

    def zones(self) -> list[str]:
        """Every zone in which a slice was ever requested, also by jobs that have been removed since."""
        ...


# Reputation ----------------------------------------------------------------------------------------------------------


class Reputation(Protocol):
    """Keeps which machines are suspected of being bad, or pinned by a person."""

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
        """Add `weight` to the score of each of these machines, faded to `at` first
        (`domain/failures/host_reputation.py`), and keep the reason. Once for each `op_id`: a repeat changes nothing."""
        ...

    def suspects(self) -> list[Suspect]:
        """Every machine that has a score or is pinned, the highest score first."""
        ...

    def put(self, suspect: Suspect) -> None:
        """Replace the record of that machine."""
        ...

    def remove(self, physical: str) -> None:
        """Forget score, pin and reasons. A repeat of an old accusation does not bring them back. Absent is success."""
        ...


# Members -------------------------------------------------------------------------------------------------------------


class Members(Protocol):
    """Keeps who may use the backend."""

    def find(self, name: str) -> Member | None: ...

    def with_id(self, id: str) -> Member | None:
        """The member who came as that principal."""
        ...

    def all(self) -> list[Member]:
        """By name."""
        ...

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        """Read the member of that name, write what `plan` makes of it (None: nobody), whole or not at all, and return
        it. `plan` is pure: it is called again when somebody else wrote first."""
        ...


# Secrets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """That there is one. Its value is asked for alone, when a program starts."""

    name: str
    set_at: float


class Secrets(Protocol):
    """Keeps values by owner (`Principal.id`) and name; nothing else of the backend does. Names are checked
    (`domain/secrets.py`). Raises Transient, Refused, StoreError."""

    def put(self, owner: str, name: str, value: str) -> None:
        """Set it. Over an older value: whoever reads gets the one or the other, whole."""
        ...

    def get(self, owner: str, name: str) -> str:
        """Raises NotFound."""
        ...

    def list(self, owner: str) -> list[KeptSecret]:
        """By name. In the cloud, what was set a moment ago by another process may be missing."""
        ...

    def remove(self, owner: str, name: str) -> None:
        """Absent is success."""
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
    type: str = ""  #: empty: not known
    pricing: str = ""  #: `spot`, `on-demand` or `reserved`; empty: not known
    tpu_slices: int = 1  #: how many TPU slices it consists of, all of that type
    suspending: bool = False  #: the cloud is taking it down by itself


class Slices(Protocol):
    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        """What the cloud says about it now. Never raises: an error is Unknown."""
        ...

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, folder: str = ""
    ) -> None:
        """Request it; returns when the request is accepted, not when the slice is ready. `folder`: of the user whose
        programs it is for, as some have an account of their own. A slice that exists and carries our labels is adopted.
        Raises Transient, or Refused with its cause."""
        ...

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        """Request the deletion of its nodes and queued resource; returns when that is accepted. Absent is success.
        Raises Transient, also while the cloud is suspending it, unless `even_suspending`; Refused, also for a slice of
        that name that is not ours."""
        ...

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        """Everything in those zones that carries our label, whatever its state; a queued resource and its nodes are
        one. A zone that is closed to the project holds nothing. Raises Transient, Refused."""
        ...


# Hosts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guest:
    """What a host has published about itself through the cloud, so that we know its keys before the first contact."""

    name: str = ""  #: of its machine; empty: not published
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
        """Names of the slices that have keys. Raises Transient."""
        ...


# Blobs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blob:
    path: str  #: `gs://bucket/…`
    size: int
    generation: int
    updated: float  #: by the storage's clock
    metadata: Mapping[str, str]
    touched: int = 0  #: grows when it is touched; of one generation


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Where a bucket lies, in small letters."""

    location: str  #: a region; a pair of regions such as `nam4`; or a continent such as `us`
    regions: frozenset[str]  #: from which it is read without charge; empty for a continent


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """How a bucket is set up, as far as it matters to jobs."""

    name: str
    location: str  #: a region, or a continent such as `us`; small letters
    location_type: str  #: `region`, `dual-region` or `multi-region`
    uniform_access: bool  #: IAM alone says who may read it
    public_access: str  #: `enforced`: nobody can make it public
    soft_delete_s: int  #: seconds for which deleted objects are kept, and billed
    versioning: bool  #: overwritten objects are kept, and billed
    log_days: int | None  #: logs of jobs are removed after that many; None: never
    ours: bool  #: tpujob made it, or was told to look after it


class Blobs(Protocol):
    """Objects by `gs://` path."""

    def put(
        self,
        path: str,
        data: bytes | IO[bytes],
        *,
        metadata: Mapping[str, str] | None = None,
        if_generation: int | None = None,
        timeout: float,
    ) -> Blob:
        """Write whole or not at all; a file from its beginning, and not as a whole in memory. `if_generation`: 0: only
        if absent; n: only over that one. Raises Conflict when that does not hold."""
        ...

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        """The bytes from `start` up to, not including, `end`. Raises NotFound."""
        ...

    def list(self, prefix: str, *, after: str = "", timeout: float) -> list[Blob]:
        """Every object whose path starts with `prefix` and sorts after `after`, by path, with its metadata."""
        ...

    def touch(self, path: str, *, timeout: float) -> None:
        """Change nothing but the mark that it is in use: who deletes it as it was before, fails. Raises NotFound."""
        ...

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        """Absent is success. `unchanged`: only if it still is as it was then, and was not touched since; raises
        Conflict."""
        ...

    def clock(self, *, timeout: float) -> float:
        """The storage's own time, so that ages are computed on one clock."""
        ...

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        """Afterwards `gs://name` exists, in that region. Raises Refused when it lies in another one."""
        ...

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        """Where the bucket of this `gs://` path lies. Raises NotFound; Refused when the bucket is somebody else's."""
        ...


# Copies --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """What lies below a prefix, and how much of it another one lacks."""

    objects: int
    bytes: int
    missing: int  #: objects that the other lacks, or has with another content
    missing_bytes: int
    counted: bool  #: False: there is more than was counted


class Copies(Protocol):
    """Copies of objects that the storage makes by itself: no byte passes through this process."""

    def compare(self, source: str, target: str, *, timeout: float) -> Comparison:
        """Count both sides, as far as the time allows; a target of "" has nothing. Raises NotFound for a bucket that
        is not there, Refused, Transient."""
        ...

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        """Go on with a copy and return how far it has come; no call is begun after `timeout`. An object is copied as it
        was listed, under a condition, and compared by size and CRC32C. Safe to repeat from any earlier progress, and
        beside another process. Raises Refused (also when the source has nothing), Transient."""
        ...
