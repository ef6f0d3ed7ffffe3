"""The Store port on Firestore, for backends in the cloud. Holds no rules beyond the port's own.

A job is one document, its events a sub-collection, its lease a document of its own. Nothing is shared between jobs
but the counter that ids come from, and only `create` touches that: Firestore takes about one write a second per
document. Changes are therefore not counted: the number of a change is the time at which the database committed it,
in microseconds, which grows as a count would and means the same to every backend.
How requests are made and repeated is in `calls.py`, what the documents look like in `records.py`.
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
from tpujob.adapters.firestore.calls import BATCH, Docs, Firestore
from tpujob.adapters.firestore.follower import STAMPED_BEFORE, Follower
from tpujob.adapters.firestore.mirror import Mirror
from tpujob.adapters.firestore.people import FirestoreMembers, FirestoreOutbox, FirestoreReputation
from tpujob.adapters.firestore.records import CHANGED, NAME, Found, Put, Remove, Time, Where
from tpujob.domain.codec import event_from_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job
from tpujob.errors import NotFound
from tpujob.ports import EventKey, Lease, Write

_NEWEST_FIRST: Mapping[str, Any] = {"order": records.NUMBER, "newest_first": True}


class FirestoreStore:
    """Implements `ports.Store`. Every call may also raise Transient (Firestore did not answer in time, or many wrote
    the same at once; nothing is lost by repeating) or StoreError (it refused; the hint says what to do)."""

    KIND, TABLES = "firestore", 0  #: it has no tables

    def __init__(self, firestore: Firestore, *, mirrored: bool = False) -> None:
        """`mirrored`: answer `peek`, `due` and `changes` from memory, which a stream of changes keeps up to date. For a
        backend, which looks at every job every few seconds."""
        self._db = firestore
        self.reputation = FirestoreReputation(firestore)
        self.members = FirestoreMembers(firestore)
        self.outbox = FirestoreOutbox(firestore)
        self._identity = ""  #: as it was read first
        self._creating = threading.Lock()  #: one process does not race itself for the next id
        self._zones: set[str] = set()  #: zones that are known to be stored
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
        def plan(docs: Docs) -> tuple[str, list[Put | Remove]]:
            if self._identity or docs[records.IDENTITY]:
                return self._same_identity(docs), []
            drawn = uuid.uuid4().hex[:16]
            return drawn, [Put(records.IDENTITY, {"id": drawn})]

        doing = "read the identity of the store"
        self._identity = self._db.change(doing, [records.IDENTITY], plan)
        return self._identity

    def _same_identity(self, docs: Docs) -> str:
        made = docs[records.IDENTITY]
        found = records.field(made, "id", str) if made else ""
        return store_records.same_identity(self._identity, found)

    def has_had_jobs(self) -> bool:
        """Whether a job was ever stored, removed ones included."""
        return self._db.read("read the newest id", records.COUNTER) is not None

    # Jobs ------------------------------------------------------------------------------------------------------------

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        # without a key, a random one: it recognises the job when the reply was lost
        made = self.create_many([(job, event)], key=idempotency_key or uuid.uuid4().hex)
        if not made:
            raise NotFound("the job of that key was removed just now")
        return made[0]

    def create_many(self, jobs: Sequence[tuple[Job, Event]], *, key: str) -> builtins.list[Job]:
        """As the port says, in one commit: two documents for each job, 500 in all and 10 MiB at most. The document of
        the key goes with the first of the jobs."""
        path = f"keys/{records.digest(key)}"

        def plan(docs: Docs) -> tuple[builtins.list[Job | str], builtins.list[Put | Remove]]:
            self._same_identity(docs)
            if taken := docs[path]:
                first = int(records.field(taken, "job", str))
                count = int(str(taken.fields.get("count", 1)))
                return [f"{first + n:06d}" for n in range(count)], []
            counter = docs[records.COUNTER]
            newest = records.field(counter, "newest", int) if counter else 0
            made: builtins.list[Job | str] = []
            puts: builtins.list[Put | Remove] = []
            for n, (job, event) in enumerate(jobs):
                stored = replace(job, id=f"{newest + 1 + n:06d}", version=1)
                kept = records.job_fields(stored, key="" if n else path, ops=[], token=0)
                puts += [
                    Put(f"jobs/{stored.id}", kept, stamped=True),
                    records.event_put(stored, event),
                ]
                made.append(stored)
            of_key = {"job": f"{newest + 1:06d}", "count": len(jobs)}
            counted = Put(records.COUNTER, {"newest": newest + len(jobs)})
            return made, [counted, Put(path, of_key), *puts]

        doing = f"create job {jobs[0][0].name}"
        for job, _ in jobs:
            self._note_zones(job)
        with self._creating:
            read = [records.IDENTITY, path, records.COUNTER]
            found = self._db.change(doing, read, plan)
        return [*filter(None, map(self._made, found))]

    def _made(self, job: Job | str) -> Job | None:
        """Return the record of a job that was stored; None: it was removed since."""
        if isinstance(job, Job):
            return self._mirror.keep(job)
        with contextlib.suppress(NotFound):
            return self.get(job)

    def get(self, job_id: str) -> Job:
        return self._mirror.read(self._existing(f"read job {job_id}", job_id))

    def peek(self, job_id: str) -> Job:
        return (self._follow().job(job_id) if self._mirrored else None) or self.get(job_id)

    def list(self, *, name: str = "", live: bool | None = None) -> list[Job]:
        wanted = {"name": name or None, "live": live}
        where: list[Where] = [(f, "==", value) for f, value in wanted.items() if value is not None]
        pages = self._db.pages("list jobs", "jobs", where=where, **_NEWEST_FIRST)
        return [job for page in pages for job in self._mirror.reader.readable(page)]

    def walk(self) -> Iterator[Job]:
        """As the port says. Costs one read for each job, and keeps none in memory."""
        few = store_records.WALKED
        for page in self._db.pages("list jobs", "jobs", limit=few, **_NEWEST_FIRST):
            yield from self._mirror.reader.readable(page, records.job)

    def commit(
        self,
        job: Job,
        event: Event | None,
        *,
        expected_version: int,
        op_id: str,
        lease: Lease | None,
    ) -> Job:
        """As the port says. Of an `op_id` only the version is kept: a repeat gets `job` back with that version."""

        def plan(docs: Docs) -> tuple[Job, list[Put | Remove]]:
            return _commit(docs, job, event, expected_version, op_id, lease)

        self._note_zones(job)
        doing, path = f"write job {job.id}", f"jobs/{job.id}"
        # without a lease only the written document is read, so no locks are needed
        paths = [path, f"leases/{job.id}"] if lease else [path]
        return self._mirror.keep(self._db.change(doing, paths, plan, locked=lease is not None))

    def commit_both(self, first: Write, second: Write) -> tuple[Job, Job]:
        writes = (first, second)

        def plan(docs: Docs) -> tuple[list[Job], list[Put | Remove]]:
            done = [
                _commit(docs, w.job, w.event, w.expected_version, w.op_id, w.lease) for w in writes
            ]
            return [job for job, _ in done], [put for _, puts in done for put in puts]

        paths = [f"{kind}/{w.job.id}" for w in writes for kind in ("jobs", "leases")]
        doing = f"write jobs {first.job.id} and {second.job.id}"
        one, two = self._db.change(doing, paths, plan, locked=True)
        return self._mirror.keep(one), self._mirror.keep(two)

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        doing = f"read the events of job {job_id}"
        self._existing(doing, job_id)
        below = f"jobs/{job_id}/events"
        where: list[Where] = [(NAME, ">", records.event_id(after))] if after > 0 else []
        found = self._db.select(doing, below, where=where, below=below)
        texts = [records.document(each) for each in found]
        return [event_from_text(job_id, text) for text in texts]

    def recent(self, *, before: EventKey | None = None, limit: int) -> list[tuple[str, Event]]:
        place = (before.at, records.event_path(before.job_id, before.seq)) if before else None
        found = self._db.select(
            "read the events of all jobs",
            "events",
            order=records.AT,
            newest_first=True,
            limit=limit,
            everywhere=True,
            after=place,
        )
        of = [(doc.path.split("/")[1], records.document(doc)) for doc in found]
        return [(job_id, event_from_text(job_id, text)) for job_id, text in of]

    def remove(self, job_id: str, *, lease: Lease | None) -> None:
        """As the port says. A call that dies halfway leaves unreachable events; a repeat removes them."""
        path, leases = f"jobs/{job_id}", f"leases/{job_id}"

        def plan(docs: Docs) -> tuple[bool, list[Put | Remove]]:
            doc = docs[path]
            if doc is None or records.removed(doc):
                return doc is not None, []
            if lease:
                records.check_lease(doc, docs[leases], lease)
            gone = [Remove(leases)] if docs[leases] else []
            tombstone = Put(path, records.TOMBSTONE, stamped=True)
            key = records.field(doc, "key", str)
            return True, [tombstone, *([Remove(key)] if key else []), *gone]

        doing = f"remove job {job_id}"
        if self._db.change(doing, [path, leases], plan):
            below = f"jobs/{job_id}/events"
            while found := self._db.select(doing, below, only=NAME, limit=BATCH):
                self._db.remove(doing, [each.path for each in found])
        self._mirror.removed(job_id)

    def damaged(self) -> list[tuple[str, str]]:
        pages = self._db.pages("check all jobs", "jobs", order=records.NUMBER)
        return [one for page in pages for one in self._mirror.reader.sift(page)[1]]

    def zones(self) -> list[str]:
        return [doc.id for doc in self._db.select("list the zones", "zones")]

    # Leases ----------------------------------------------------------------------------------------------------------

    def lease(self, job_id: str, owner: str, *, ttl: float, now: float) -> Lease | None:
        """As the port says; None also for a job that does not exist."""
        path, leases = f"jobs/{job_id}", f"leases/{job_id}"

        def plan(docs: Docs) -> tuple[Lease | bool, list[Put | Remove]]:
            held, doc = docs[leases], docs.get(path)
            if held is None and path not in docs:
                return True, []
            if held:
                token, until = (
                    records.field(held, "token", int),
                    records.field(held, "until", float),
                )
                if records.field(held, "owner", str) != owner and until > now:
                    return False, []
            elif doc is None or records.removed(doc):
                return False, []
            else:  # the first lease, or its document was lost: tokens must grow in any case
                token = records.field(doc, "token", int)
            lease = Lease(job_id, owner, token + 1, now + ttl)
            return lease, [records.lease_put(leases, owner, lease.token, lease.until)]

        doing = f"lease job {job_id}"
        taken = self._db.change(doing, [leases], plan)
        if taken is True:  # never leased before: does the job exist?
            taken = self._db.change(doing, [leases, path], plan)
        return taken if isinstance(taken, Lease) else None

    def release(self, lease: Lease) -> None:
        path = f"leases/{lease.job_id}"

        def plan(docs: Docs) -> tuple[None, list[Put | Remove]]:
            held = docs[path]  # stays: its token must go on growing
            if held is None or not records.same_lease(held, lease):
                return None, []
            return None, [records.lease_put(path, lease.owner, lease.token, 0.0)]

        self._db.change(f"release job {lease.job_id}", [path], plan)

    # When to look ----------------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[str]:
        known = self._follow().due(now) if self._mirrored else None
        if known is not None:
            return known
        where: list[Where] = [(records.WAKE, "<=", float(now))]
        pages = self._db.pages("list due jobs", "jobs", where=where, order=records.WAKE)
        return [job.id for page in pages for job in self._mirror.reader.readable(page)]

    def newest(self) -> int:
        """As the port says. Costs one read; from the mirror, none."""
        known = self._follow().newest() if self._mirrored else None
        return self._db.now("follow the jobs") if known is None else known

    def changes(self, after: int) -> tuple[int, list[str]]:
        """As the port says. Costs one read for each job that was changed since shortly before `after`. From the mirror
        it costs none, and a change shows once the stream has delivered it."""
        known = self._follow().changes(after) if self._mirrored else None
        if known is not None:
            return known
        # before the query, which shows everything up to it: from there on the stream answers
        begun = self._mirror.floor
        since = max(0, after - STAMPED_BEFORE * 1_000_000)
        where: list[Where] = [(CHANGED, ">", Time(since))] if since else []
        docs = self._db.select("follow the jobs", "jobs", where=where, order=CHANGED, only=CHANGED)
        # The query selects by stamp, the answer counts by time of commit: a query sees everything that was committed
        # before its moment.
        new = sorted((doc.changed_us, doc.id) for doc in docs if doc.changed_us > after)
        newest = new[-1][0] if new else after
        return max(newest, begun), [job_id for _, job_id in new]

    # Steps -----------------------------------------------------------------------------------------------------------

    def _existing(self, doing: str, job_id: str) -> Found:
        return records.existing(self._db.read(doing, f"jobs/{job_id}"), job_id)

    def _note_zones(self, job: Job) -> None:
        """Called before the job is stored. An unneeded zone costs one extra list call; a missing one leaks a slice."""
        new = {s.zone for s in job.slices} - self._zones
        if new:
            puts = [Put(f"zones/{zone}", {}) for zone in sorted(new)]
            self._db.change("remember a zone", [], lambda _: (None, puts))
            self._zones |= new

    def _follow(self) -> Mirror:
        """The mirror, with a stream that keeps it up to date."""
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
) -> tuple[Job, list[Put | Remove]]:
    """Return the job as stored, and what must be written for it."""
    path, leases = f"jobs/{job.id}", f"leases/{job.id}"
    doc = records.existing(docs[path], job.id)
    version, ops = records.field(doc, "version", int), records.ops(doc)
    if op_id in ops:
        return replace(job, version=ops[op_id]), []
    if lease:
        records.check_lease(doc, docs[leases], lease)
    if version != expected_version:
        raise store_records.moved_on(job.id, version, expected_version)
    stored = replace(job, version=version + 1)
    fields = records.job_fields(
        stored,
        key=records.field(doc, "key", str),
        ops=records.remembered(ops, op_id, stored.version),
        token=max(records.field(doc, "token", int), lease.token if lease else 0),
    )
    puts: list[Put | Remove] = [Put(path, fields, stamped=True)]
    return stored, [*puts, records.event_put(stored, event)] if event else puts
