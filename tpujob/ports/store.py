"""Where jobs and their events are kept."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tpujob.domain.events import Event
from tpujob.domain.model import Job


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act on one job until `until`. `token` grows with every lease of that job."""

    job_id: str
    owner: str
    token: int
    until: float


@dataclass(frozen=True, slots=True)
class Write:
    """The arguments of one `Store.commit`."""

    job: Job
    event: Event
    expected_version: int
    op_id: str
    lease: Lease


class EventKey(NamedTuple):
    """Where an event stands among those of all jobs."""

    at: float
    job_id: str
    seq: int


class Store(Protocol):
    """Keeps jobs and events. Holds no rules: it compares a version and writes."""

    def identity(self) -> str:
        """What tells this store from every other one: a random word, drawn when it was made and kept in it.
        Raises StoreError when it was read before and is no longer the same: the store was emptied or replaced."""
        ...

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        """Store a new job (its `id` is ignored and assigned here) with its first event.
        The same non-empty key gives back the job of the first call and stores nothing. Raises StoreError in the same
        case as `identity`."""
        ...

    def create_many(self, jobs: Sequence[tuple[Job, Event]], *, key: str) -> builtins.list[Job]:
        """Store some hundred new jobs, each with its first event: all of them or none, with ids in their order. The
        same key gives back those of the first call that are still there, and stores nothing."""
        ...

    def get(self, job_id: str) -> Job:
        """Raises NotFound; StoreError when its record is damaged."""
        ...

    def peek(self, job_id: str) -> Job:
        """As `get`, but perhaps a moment old, where that is cheaper. Good enough to decide on, since a commit compares
        the version; not to act on without a commit."""
        ...

    def list(self, *, name: str = "", live: bool | None = None) -> list[Job]:
        """Jobs, newest first. `live`: True: not in a final state; False: in one; None: both.
        Jobs with a damaged record are left out: before concluding anything from a job's absence, ask `damaged()`."""
        ...

    def walk(self) -> Iterator[Job]:
        """As `list`, every job, of which few are in memory at a time. One that changes meanwhile comes as it was or as
        it is; one that is removed may come or not."""
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

    def commit_both(self, first: Write, second: Write) -> tuple[Job, Job]:
        """Two commits of two jobs, both or neither. Raises as `commit`; a repeat returns what the first call stored."""
        ...

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        """Events with `seq > after`, oldest first. Raises NotFound."""
        ...

    def recent(self, *, before: EventKey | None = None, limit: int) -> list[tuple[str, Event]]:
        """Events of all jobs, the newest first, each with its job's id: at most `limit` of those that come after
        `before` in this order. Those that were stored before this was asked for may be missing."""
        ...

    def remove(self, job_id: str, *, lease: Lease | None) -> None:
        """Remove the record and its events. Absent is success. Raises Fenced."""
        ...

    def lease(self, job_id: str, owner: str, *, ttl: float, now: float) -> Lease | None:
        """Return a new lease, or None while another owner's is in force. The same owner gets a new, higher token."""
        ...

    def release(self, lease: Lease) -> None:
        """End a lease early. No error if it is no longer in force."""
        ...

    def due(self, now: float) -> list[str]:
        """Ids of the jobs whose `wake` has passed, the longest overdue first; without final jobs that have nothing left
        to do. May be a moment old."""
        ...

    def newest(self) -> int:
        """The number of the newest change, or one that no later change has. Cheap."""
        ...

    def changes(self, after: int) -> tuple[int, list[str]]:
        """The newest change number, and the ids of jobs changed after `after` (removed ones included). Cheap."""
        ...

    def close(self) -> None:
        """Close files and connections; the store still works afterwards."""
        ...

    def damaged(self) -> list[tuple[str, str]]:
        """Ids of the jobs whose record cannot be read, each with the reason. `list` and `due` leave them out."""
        ...

    def zones(self) -> list[str]:
        """Every zone in which a slice was ever requested, also by jobs that have been removed since."""
        ...
