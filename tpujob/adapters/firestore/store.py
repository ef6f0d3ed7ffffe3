"""The store of jobs and events on Firestore, for backends in the cloud. Holds no rules beyond the port's own.

A job is a document, its events are a sub-collection, its lease is another document. Jobs share only the counter that
ids come from, which only `create` writes: Firestore accepts about one write a second per document. For the same reason
changes have no counter. The number of a change is the time of its commit in the database, in microseconds. It grows
as a count would and is the same for every backend.

`calls.py` makes and retries the requests, `records.py` converts records to documents.
"""

from __future__ import annotations

import builtins
import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tpujob.adapters import records as store_records
from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.book import FirestoreBook
from tpujob.adapters.firestore.calls import BATCH, Docs, Firestore, Writes
from tpujob.adapters.firestore.follower import STAMPED_BEFORE, Follower
from tpujob.adapters.firestore.mirror import Mirror
from tpujob.adapters.firestore.people import FirestoreMembers, FirestoreOutbox, FirestoreReputation
from tpujob.adapters.firestore.records import CHANGED, NAME, Doc, Put, Remove, Time, Where
from tpujob.domain.codec import event_from_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job
from tpujob.errors import NotFound
from tpujob.ports import EventKey, Lease, Write

_NEWEST_FIRST: Mapping[str, Any] = {"order": records.NUMBER, "newest_first": True}


class FirestoreStore:
    """Implements `ports.Store`. Every call may also raise Transient (Firestore did not answer in time, or others wrote
    the same documents; a retry is safe) or StoreError (Firestore refused; the hint says what to do)."""

    KIND = "firestore"
    walk_page = store_records.WALK_PAGE
    TABLES = 0  #: Firestore has no tables

    def __init__(self, firestore: Firestore, *, mirrored: bool = False) -> None:
        """`mirrored`: answer `peek`, `due`, `newest` and `changes` from a cache that a stream keeps up to date. For
        backends, which read every job every few seconds."""
        self._db = firestore
        self.reputation = FirestoreReputation(firestore)
        self.members = FirestoreMembers(firestore)
        self.outbox = FirestoreOutbox(firestore)
        self.host_keys = FirestoreBook(firestore, "hostkeys")  #: of slices
        self._identity = ""  #: as first read
        self._creating = threading.Lock()  #: lets threads of this process take ids in turn
        self._zones: set[str] = set()  #: zones that are stored for certain
        self._mirror, self._mirrored = Mirror(), mirrored
        self._follower: Follower | None = None
        self._following = threading.Lock()

    def close(self) -> None:
        with self._following:
            follower, self._follower = self._follower, None
        if follower:
            follower.close()
        self._db.close()

    def identity(self) -> str:
        def plan(docs: Docs) -> tuple[str, Writes]:
            if self._identity or docs[records.IDENTITY]:
                return self._check_identity(docs), []
            drawn = uuid.uuid4().hex[:16]
            return drawn, [Put(records.IDENTITY, {"id": drawn})]

        doing = "read the identity of the store"
        self._identity = self._db.change(doing, [records.IDENTITY], plan)
        return self._identity

    def _check_identity(self, docs: Docs) -> str:
        doc = docs[records.IDENTITY]
        stored = records.field(doc, "id", str) if doc else ""
        return store_records.check_identity(self._identity, stored)

    def has_had_jobs(self) -> bool:
        """Return whether a job was ever stored, removed ones included."""
        return self._db.read("read the newest id", records.COUNTER) is not None

    # Jobs ------------------------------------------------------------------------------------------------------------

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        # without a key, a random one: a retry after a lost reply recognises the job by it
        jobs = self.create_many([(job, event)], key=idempotency_key or uuid.uuid4().hex)
        if not jobs:
            raise NotFound("the job of that key was removed just now")
        return jobs[0]

    def find_created(self, key: str) -> Job | None:
        doc = self._db.read("find a submitted job", f"keys/{records.digest(key)}")
        return self._created_job(records.field(doc, "job", str)) if doc else None

    def create_many(self, jobs: Sequence[tuple[Job, Event]], *, key: str) -> builtins.list[Job]:
        """Store the jobs in one commit: two documents for each job, 500 in all and 10 MiB at most. Removing the first
        of the jobs removes the document of the key, too."""
        path = f"keys/{records.digest(key)}"

        def plan(docs: Docs) -> tuple[builtins.list[Job | str], Writes]:
            self._check_identity(docs)
            if taken := docs[path]:
                first = int(records.field(taken, "job", str))
                count = int(str(taken.fields.get("count", 1)))
                return [f"{first + place:06d}" for place in range(count)], []
            counter = docs[records.COUNTER]
            newest = records.field(counter, "newest", int) if counter else 0
            created: builtins.list[Job | str] = []
            puts: Writes = []
            for place, (job, event) in enumerate(jobs):
                stored = replace(job, id=f"{newest + 1 + place:06d}", version=1)
                fields = records.job_fields(stored, key="" if place else path, ops=[], token=0)
                puts.append(Put(f"jobs/{stored.id}", fields, stamped=True))
                puts.append(records.event_put(stored, event))
                created.append(stored)
            key_put = Put(path, {"job": f"{newest + 1:06d}", "count": len(jobs)})
            counter_put = Put(records.COUNTER, {"newest": newest + len(jobs)})
            return created, [counter_put, key_put, *puts]

        doing = f"create job {jobs[0][0].name}"
        for job, _ in jobs:
            self._note_zones(job)
        with self._creating:
            paths = [records.IDENTITY, path, records.COUNTER]
            created = self._db.change(doing, paths, plan)
        return [*filter(None, map(self._created_job, created))]

    def _created_job(self, job: Job | str) -> Job | None:
        """Return a job that was just created, or that an earlier call has created with this id; None: removed since."""
        if isinstance(job, Job):
            return self._mirror.keep(job)
        with contextlib.suppress(NotFound):
            return self.get(job)

    def get(self, job_id: str) -> Job:
        return self._mirror.read(self._read_existing(f"read job {job_id}", job_id))

    def peek(self, job_id: str) -> Job:
        cached = self._follow().job(job_id) if self._mirrored else None
        return cached or self.get(job_id)

    def list(self, *, name: str = "", live: bool | None = None) -> list[Job]:
        filters = {"name": name or None, "live": live}
        where: list[Where] = [
            (field, "==", value) for field, value in filters.items() if value is not None
        ]
        pages = self._db.pages("list jobs", "jobs", where=where, **_NEWEST_FIRST)
        return [job for page in pages for job in self._mirror.reader.readable(page)]

    def walk(self) -> Iterator[Job]:
        """Yield every job, newest first. Costs one read for each job; caches none."""
        for page in self._db.pages("list jobs", "jobs", limit=self.walk_page, **_NEWEST_FIRST):
            yield from self._mirror.reader.readable(page, records.parse_job)

    def commit(
        self,
        job: Job,
        event: Event | None,
        *,
        expected_version: int,
        op_id: str,
        lease: Lease | None,
    ) -> Job:
        """Commit as the port says. With an `op_id` only the version is stored: a repeat gets `job` with it."""

        def plan(docs: Docs) -> tuple[Job, Writes]:
            return _commit(docs, job, event, expected_version, op_id, lease)

        self._note_zones(job)
        doing, path = f"write job {job.id}", f"jobs/{job.id}"
        # without a lease only the written document is read, so no locks are needed
        paths = [path, f"leases/{job.id}"] if lease else [path]
        return self._mirror.keep(self._db.change(doing, paths, plan, locked=lease is not None))

    def commit_both(self, first: Write, second: Write) -> tuple[Job, Job]:
        writes = (first, second)

        def plan(docs: Docs) -> tuple[list[Job], Writes]:
            commits = [
                _commit(docs, w.job, w.event, w.expected_version, w.op_id, w.lease) for w in writes
            ]
            return [job for job, _ in commits], [put for _, puts in commits for put in puts]

        paths = [f"{kind}/{w.job.id}" for w in writes for kind in ("jobs", "leases")]
        doing = f"write jobs {first.job.id} and {second.job.id}"
        stored = self._db.change(doing, paths, plan, locked=True)
        return self._mirror.keep(stored[0]), self._mirror.keep(stored[1])

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        doing = f"read the events of job {job_id}"
        self._read_existing(doing, job_id)
        below = f"jobs/{job_id}/events"
        where: list[Where] = [(NAME, ">", records.event_id(after))] if after > 0 else []
        docs = self._db.select(doing, below, where=where, below=below)
        return [event_from_text(job_id, records.text_of(doc)) for doc in docs]

    def recent(self, *, before: EventKey | None = None, limit: int) -> list[tuple[str, Event]]:
        cursor = (before.at, records.event_path(before.job_id, before.seq)) if before else None
        docs = self._db.select(
            "read the events of all jobs",
            "events",
            order=records.AT,
            newest_first=True,
            limit=limit,
            everywhere=True,
            after=cursor,
        )
        texts = [(doc.path.split("/")[1], records.text_of(doc)) for doc in docs]
        return [(job_id, event_from_text(job_id, text)) for job_id, text in texts]

    def remove(self, job_id: str, *, lease: Lease | None, keep: Job | None = None) -> None:
        """Remove a job and its events. An interrupted call leaves unreachable events, which a repeat removes."""
        path, lease_path = f"jobs/{job_id}", f"leases/{job_id}"

        def plan(docs: Docs) -> tuple[bool, Writes]:
            doc = docs[path]
            if doc is None or records.is_removed(doc):
                return doc is not None, []
            if lease:
                records.check_lease(doc, docs[lease_path], lease)
            writes: Writes = [Put(path, records.TOMBSTONE, stamped=True)]
            if key_path := records.field(doc, "key", str):
                writes.append(Remove(key_path))
            if docs[lease_path]:
                writes.append(Remove(lease_path))
            if keep:
                writes.append(records.removed_put(keep))
            return True, writes

        doing = f"remove job {job_id}"
        if self._db.change(doing, [path, lease_path], plan):
            below = f"jobs/{job_id}/events"
            while docs := self._db.select(doing, below, only=NAME, limit=BATCH):
                self._db.remove(doing, [doc.path for doc in docs])
        self._mirror.note_removal(job_id)

    def removed(self) -> builtins.list[Job]:
        pages = self._db.pages("list what removed jobs have cost", "removed", order=records.NUMBER)
        readable = self._mirror.reader.readable
        return [job for page in pages for job in readable(page, records.parse_job)]

    def damaged(self) -> list[tuple[str, str]]:
        pages = self._db.pages("check all jobs", "jobs", order=records.NUMBER)
        return [row for page in pages for row in self._mirror.reader.sift(page)[1]]

    def zones(self) -> list[str]:
        return [doc.id for doc in self._db.select("list the zones", "zones")]

    # Leases ----------------------------------------------------------------------------------------------------------

    def lease(self, job_id: str, owner: str, *, ttl: float) -> Lease | None:
        """Return a new lease; None for a job that does not exist, and while another owner's lease is in force."""
        path, lease_path = f"jobs/{job_id}", f"leases/{job_id}"

        def plan(docs: Docs) -> tuple[Lease | bool, Writes]:
            held, doc = docs[lease_path], docs.get(path)
            if held is None and path not in docs:
                return True, []
            if held:
                token = records.field(held, "token", int)
                if records.field(held, "owner", str) != owner and records.in_force(held):
                    return False, []
            elif doc is None or records.is_removed(doc):
                return False, []
            else:  # the first lease, or its document was lost: the token must still grow
                token = records.field(doc, "token", int)
            lease = Lease(job_id, owner, token + 1, ttl)
            return lease, [records.lease_put(lease)]

        doing = f"lease job {job_id}"
        taken = self._db.change(doing, [lease_path], plan)
        if taken is True:  # the job has no lease: check that it exists
            taken = self._db.change(doing, [lease_path, path], plan)
        return taken if isinstance(taken, Lease) else None

    def release(self, lease: Lease) -> None:
        path = f"leases/{lease.job_id}"

        def plan(docs: Docs) -> tuple[None, Writes]:
            held = docs[path]  # the document stays, so that tokens keep growing
            if held is None or not records.same_lease(held, lease):
                return None, []
            return None, [records.lease_put(replace(lease, ttl=0.0))]

        self._db.change(f"release job {lease.job_id}", [path], plan)

    # When to look ----------------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[str]:
        cached = self._follow().due(now) if self._mirrored else None
        if cached is not None:
            return cached
        where: list[Where] = [(records.WAKE, "<=", float(now))]
        pages = self._db.pages("list due jobs", "jobs", where=where, order=records.WAKE)
        return [job.id for page in pages for job in self._mirror.reader.readable(page)]

    def newest(self) -> int:
        """Return the number of the newest change. Costs one read; from the mirror, none."""
        cached = self._follow().newest() if self._mirrored else None
        return self._db.now("follow the jobs") if cached is None else cached

    def changes(self, after: int) -> tuple[int, list[str]]:
        """Return the newest change number and the jobs changed after `after`. Costs one read for each job that was
        changed since shortly before `after`. From the mirror it costs none, but a change appears only when the stream
        has delivered it."""
        cached = self._follow().changes(after) if self._mirrored else None
        if cached is not None:
            return cached
        # read before the query, which shows all changes up to the floor; the mirror answers from the floor on
        floor = self._mirror.floor
        since = max(0, after - STAMPED_BEFORE * 1_000_000)
        where: list[Where] = [(CHANGED, ">", Time(since))] if since else []
        docs = self._db.select("follow the jobs", "jobs", where=where, order=CHANGED, only=CHANGED)
        # the query selects by the server's stamp, but changes are numbered by the time of their commit
        new = sorted((doc.changed_us, doc.id) for doc in docs if doc.changed_us > after)
        newest = new[-1][0] if new else after
        return max(newest, floor), [job_id for _, job_id in new]

    # Steps -----------------------------------------------------------------------------------------------------------

    def _read_existing(self, doing: str, job_id: str) -> Doc:
        return records.check_exists(self._db.read(doing, f"jobs/{job_id}"), job_id)

    def _note_zones(self, job: Job) -> None:
        """Store the zones of a job's slices, before the job itself. A superfluous zone costs a list call; a missing
        zone would leak a slice."""
        new = {slice.zone for slice in job.slices} - self._zones
        if new:
            puts: Writes = [Put(f"zones/{zone}", {}) for zone in sorted(new)]
            self._db.change("remember a zone", [], lambda _: (None, puts))
            self._zones |= new

    def _follow(self) -> Mirror:
        """Return the mirror, after starting the stream that keeps it up to date."""
        with self._following:
            if self._follower is None:
                self._follower = Follower(self._db, self._mirror)
        return self._mirror


def _commit(
    docs: Docs,
    job: Job,
    event: Event | None,
    expected_version: int,
    op_id: str,
    lease: Lease | None,
) -> tuple[Job, Writes]:
    """Return the job as it will be stored, and the writes that store it."""
    path, lease_path = f"jobs/{job.id}", f"leases/{job.id}"
    doc = records.check_exists(docs[path], job.id)
    version = records.field(doc, "version", int)
    ops = records.parse_ops(doc)
    if op_id in ops:
        return replace(job, version=ops[op_id]), []
    if lease:
        records.check_lease(doc, docs[lease_path], lease)
    if version != expected_version:
        raise store_records.moved_on(job.id, version, expected_version)
    stored = replace(job, version=version + 1)
    fields = records.job_fields(
        stored,
        key=records.field(doc, "key", str),
        ops=records.add_op(ops, op_id, stored.version),
        token=max(records.field(doc, "token", int), lease.token if lease else 0),
    )
    puts: Writes = [Put(path, fields, stamped=True)]
    return stored, [*puts, records.event_put(stored, event)] if event else puts
