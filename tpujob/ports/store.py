"""The store of jobs and their events."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tpujob.domain.events import Event
from tpujob.domain.model import Job


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act on one job for `ttl` seconds. `token` grows with every lease of that job."""

    job_id: str
    owner: str
    token: int
    ttl: float
    until: float = 0.0  #: its end for its holder, who counts from before the call, on its own steady clock; not stored


@dataclass(frozen=True, slots=True)
class Write:
    """The arguments of one `Store.commit`."""

    job: Job
    event: Event
    expected_version: int
    op_id: str
    lease: Lease


class EventKey(NamedTuple):
    """The position of an event in the order of all jobs' events."""

    at: float
    job_id: str
    seq: int


class Store(Protocol):
    """Keeps jobs and events. Has no rules: compares a version and writes."""

    def identity(self) -> str:
        """Return the store's identity: a random word, written when the store was made. Raise StoreError if the word has
        changed since an earlier call: the store was emptied or replaced."""
        ...

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        """Store a new job with its first event, and return the job with a new `id`. A repeat with the same non-empty
        key returns the job of the first call and stores nothing. Raise StoreError in the same case as `identity`."""
        ...

    def find_created(self, key: str) -> Job | None:
        """Return the job that a call of `create` with that key has stored; None: there is none."""
        ...

    def create_many(self, jobs: Sequence[tuple[Job, Event]], *, key: str) -> builtins.list[Job]:
        """Store up to some hundred new jobs, each with its first event: all or none, with ids in their order. A repeat
        with the same key returns those jobs of the first call that still exist, and stores nothing."""
        ...

    def get(self, job_id: str) -> Job:
        """Return the job. Raise NotFound, or StoreError if its record is damaged."""
        ...

    def peek(self, job_id: str) -> Job:
        """Return the job, perhaps a moment old if that is cheaper. Use it for decisions, as a commit compares the
        version; never act on it without a commit."""
        ...

    def list(self, *, name: str = "", live: bool | None = None) -> list[Job]:
        """Return jobs, newest first. `live`: True: not in a final state; False: in a final state; None: both. Jobs with
        a damaged record are left out: call `damaged()` before you conclude anything from a job's absence."""
        ...

    def walk(self) -> Iterator[Job]:
        """Yield every job, in the order of `list`, with few jobs in memory at a time. A job that changes meanwhile
        comes in its old or new version; a job that is removed meanwhile may come or not."""
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
        """Write `job` as version `expected_version + 1` and append `event`, atomically; return the stored job. A repeat
        with the same `op_id` returns the job that the first call stored. Raise Conflict if the version differs, Fenced
        if a newer lease than `lease` exists, NotFound."""
        ...

    def commit_both(self, first: Write, second: Write) -> tuple[Job, Job]:
        """Commit two jobs, both or neither. Raise the errors of `commit`. A repeat returns the first call's jobs."""
        ...

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        """Return the events with `seq > after`, oldest first. Raise NotFound."""
        ...

    def recent(self, *, before: EventKey | None = None, limit: int) -> list[tuple[str, Event]]:
        """Return at most `limit` events of all jobs that are older than `before`, the newest first, each with its job's
        id. Events stored by versions without this method may be missing."""
        ...

    def remove(self, job_id: str, *, lease: Lease | None, keep: Job | None = None) -> None:
        """Remove the record and its events. `keep` stays, for `removed`. Absent is success. Raise Fenced."""
        ...

    def removed(self) -> builtins.list[Job]:
        """Return what stayed of removed jobs, without what cannot be read."""
        ...

    def lease(self, job_id: str, owner: str, *, ttl: float) -> Lease | None:
        """Return a new lease; None: another owner's lease is in force, or there is no such job. The same owner gets a
        new, higher token. What is in force follows from one clock, the store's: no caller's time is compared."""
        ...

    def release(self, lease: Lease) -> None:
        """End a lease early. Without effect if the lease has ended."""
        ...

    def due(self, now: float) -> list[str]:
        """Return the ids of jobs whose `wake` has passed, the longest overdue first, without final jobs that need no
        more work. May be a moment old."""
        ...

    def newest(self) -> int:
        """Return the number of the newest change, or a number below every later one. Cheap."""
        ...

    def changes(self, after: int) -> tuple[int, list[str]]:
        """Return the newest change number, and the ids of jobs changed or removed after `after`. Cheap."""
        ...

    def close(self) -> None:
        """Close files and connections; the store still works afterwards."""
        ...

    def damaged(self) -> list[tuple[str, str]]:
        """Return the ids of jobs with an unreadable record, each with the reason. `list` and `due` leave them out. Who
        needs both calls this first: a record that is repaired in between is then in both, and not in neither."""
        ...

    def zones(self) -> list[str]:
        """Return every zone in which a slice was ever requested, also by jobs that have been removed."""
        ...
