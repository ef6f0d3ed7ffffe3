"""A row of every job, in memory: lists and counts read nothing from the store but what has changed.

Jobs that have ended are kept as the few bytes of their row, the others as their record. All records are read once;
after that those that `Changes` names. What the reconciler sees of a running program is compared where it is shown.
"""

import marshal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tpujob.api import JobFacts, JobPage, JobRow, ListQuery
from tpujob.domain import access, pace
from tpujob.domain.access import Principal
from tpujob.domain.failures.disclosure import job_in_full
from tpujob.domain.model import Cause, DesiredState, Job, Progress, State
from tpujob.domain.money import ledger
from tpujob.domain.money.ledger import rate
from tpujob.domain.progress import job_progress
from tpujob.errors import DamagedRecord, NotFound, StoreError
from tpujob.ports import Clock, Store
from tpujob.service import next_step
from tpujob.service.job_index import query as listing
from tpujob.service.job_index.changes import Changes
from tpujob.service.job_index.query import IndexedJob, ParsedQuery
from tpujob.service.job_index.rows import job_row, listed
from tpujob.service.runtime_info import NOTHING, RuntimeReader
from tpujob.service.views import speed

FIELDS = tuple(JobRow.__annotations__)
#: a group that goes on is shown in the first of these in which it has an element
_AT_WORK = (State.RUNNING, State.PREPARING, State.PROVISIONING, State.HOLDING, State.RELEASING)


@dataclass(slots=True)
class _Entry:
    """The index's entry of one job."""

    listed: IndexedJob
    version: int
    job: Job | None  #: None: it has ended
    row: bytes = b""  #: then marshalled: read for each page that shows it
    full: bytes = b""  #: the same for its owner and admins; empty: it has no more
    progress: Progress | None = None  #: what was last seen of its program
    moved_at: float | None = None


class JobIndex:
    """Thread-safe. One caller at a time reads the store; nothing of the reconciler waits for it."""

    def __init__(
        self, store: Store, changes: Changes, clock: Clock, knowledge: RuntimeReader
    ) -> None:
        self._store, self._changes, self._clock = store, changes, clock
        self._knowledge = knowledge
        self._lock = threading.RLock()
        self._noting = threading.Lock()
        self._noted: dict[str, Job] = {}
        self._gone: set[int] = set()  #: removed: an id never comes back
        self._forget()

    def _forget(self) -> None:
        self._jobs: dict[int, _Entry] = {}
        #: of all jobs, the newest first; None: to be made
        self._rows: list[IndexedJob] | None = None
        self._elements: dict[int, set[int]] = {}  #: the jobs of each group
        self._counts = defaultdict[int, Counter[State]](Counter)  #: their states
        self._revision: int | None = None  #: None: nothing was read yet
        self._again: set[str] = set()  #: jobs whose records could not be read
        self._damaged: set[str] = (
            set()
        )  #: of these, jobs whose records are damaged, or of another version

    # Kept current -----------------------------------------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Include a job that this process has just stored in the next answer."""
        with self._noting:
            noted = self._noted.get(job.id)
            if noted is None or noted.version < job.version:
                self._noted[job.id] = job

    # Answers ----------------------------------------------------------------------------------------------------------

    def page(self, caller: Principal, filters: ListQuery | Mapping[str, Any]) -> JobPage:
        """Return what `JobsApi.list` sends that caller. Raises BadRequest, and the errors of the store."""
        query = listing.parse_query(filters, caller, FIELDS)
        with self._lock:
            self._read_changes()
            if query.order in listing.MOVING:  # else what runs is looked at where it is shown
                self._watch()
            now = self._clock.now()
            alike = listing.alike(self._all(), query)
            states = Counter(row.state for row in alike)
            matching = listing.narrowed(alike, query, now)
            shown, after, first = self._cut(matching, query, now)
            entries = [self._jobs[row.number] for row in shown]
            revision, total = self._revision or 0, len(self._jobs)
            unreadable = sorted(self._damaged)
        rows = [self._row(entry, caller, now) for entry in entries]
        for entry, row in zip(shown, rows, strict=True):
            if entry.is_group:
                self.sum_up(row)
                row["why"] = next_step.elements_text(row) or row["why"]
        return JobPage(
            rows=[_chosen(row, query) for row in rows],
            next=after,
            first=first,
            matching=len(matching),
            total=total,
            unreadable=unreadable,
            states={state.value: states[state] for state in State if states[state]},
            revision=revision,
        )

    def unreadable(self) -> list[str]:
        """Return the ids of the jobs whose records cannot be read. They are in no other answer."""
        with self._lock:
            self._read_changes()
            return sorted(self._damaged)

    def states(self) -> dict[str, int]:
        with self._lock:
            self._read_changes()
            return {state.value: n for state, n in Counter(r.state for r in self._all()).items()}

    def hardware(self) -> tuple[int, int, int]:
        """Count the slices that jobs hold and the slices that they have requested; sum what the held ones cost in
        micro-dollars an hour, as far as prices are known."""
        with self._lock:
            self._read_changes()
            live = self._live()
        slices = [slice for job in live for slice in job.slices if slice.gone_at is None]
        held = [slice for slice in slices if slice.ready_at is not None]
        return len(held), len(slices) - len(held), sum(rate(slice) or 0 for slice in held)

    def split(self) -> tuple[list[Job], dict[int, int], set[int]]:
        """Return the records of the active jobs; of each that has ended its number, and the version of its record; and
        the numbers of jobs that were removed since the first answer."""
        with self._lock:
            self._read_changes()
            ended = {n: entry.version for n, entry in self._jobs.items() if entry.job is None}
            return self._live(), ended, set(self._gone)

    def sum_up(self, view: JobFacts) -> None:
        """Write into the view of a group how many elements are in each state, and what they cost."""
        with self._lock:
            self._read_changes()
            number = int(view["id"])
            rows = [self._jobs[n].listed for n in self._elements.get(number, ())]
            counts = self._counts[number].copy()
            if number in self._jobs:
                view["state"] = self._jobs[number].listed.state.value
        now = self._clock.now()
        spent = [row.spent(now) for row in rows]
        view["elements"] = {state.value: counts[state] for state in State if counts[state]}
        view["usd_spent"] = None if None in spent else round(sum(filter(None, spent)), 6)
        view["usd_per_hour"] = sum(s.rate or 0 for row in rows for s in row.billed) / ledger.US

    def stopping(self, group: Job) -> list[str]:
        """Return the ids of the active elements that were cancelled."""
        with self._lock:
            self._read_changes()
            jobs = (self._jobs[n].job for n in sorted(self._elements.get(int(group.id), ())))
            return [job.id for job in jobs if job and job.desired is not DesiredState.RUN]

    def names(self, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return name and user of those jobs that exist."""
        with self._lock:
            self._read_changes()
            entries = {job_id: self._jobs.get(int(job_id)) for job_id in ids}
            return {
                i: (entry.listed.name, entry.listed.user) for i, entry in entries.items() if entry
            }

    def users(self) -> dict[str, str]:
        """Return the user name of each owner, from the newest of their jobs."""
        with self._lock:
            self._read_changes()
            return {row.owner: row.user for row in reversed(self._all())}

    def ended_by(self, cause: Cause) -> list[str]:
        """Return the ids of the jobs that have ended for that cause."""
        with self._lock:
            self._read_changes()
            return [
                f"{row.number:06d}" for row in self._all() if row.cause == cause and row.ended_at
            ]

    def ended_since(self, at: float) -> list[str]:
        """Return the ids of the jobs that have ended since `at`."""
        with self._lock:
            self._read_changes()
            return [f"{row.number:06d}" for row in self._all() if row.ended_at >= at]

    @property
    def revision(self) -> int:
        """The change of the store up to which the rows are current."""
        return self._revision or 0

    # Pages -----------------------------------------------------------------------------------------------------------

    def _cut(
        self, matching: Sequence[IndexedJob], query: ParsedQuery, now: float
    ) -> tuple[list[IndexedJob], str, int]:
        """Return the rows of the page, the key of the next, and the number of the first row."""
        key = query.after
        # what grows with time is compared as it was when the list began
        at = key.at if key else now
        rows = listing.ordered(matching, query, at)
        if key:
            rows = [row for row in rows if listing.comes_after(row, key, query, at)]
        first = len(matching) - len(rows) + 1
        if not query.limit or len(rows) <= query.limit:
            return rows, "", first
        last = rows[query.limit - 1]
        value = listing.COLUMNS[query.order].value(last, at)
        after = listing.PageKey(query.order, query.reverse, at, value, last.number).text()
        return rows[: query.limit], after, first

    def _row(self, entry: _Entry, caller: Principal, now: float) -> JobRow:
        mine = access.is_own(caller, entry.listed.owner)
        private = access.sees_all(caller, entry.listed.owner)
        if entry.job is not None:
            job = job_in_full(entry.job) if private else entry.job
            row = job_row(job, self._knowledge.of(entry.job, now), now, mine=mine)
        else:
            row = cast(JobRow, marshal.loads((private and entry.full) or entry.row))  # noqa: S302, written below
            row["mine"] = mine
        if not private:
            row["params"] = {}
        return row

    # Looking ---------------------------------------------------------------------------------------------------------

    def _all(self) -> list[IndexedJob]:
        if self._rows is None:
            self._rows = [self._jobs[number].listed for number in sorted(self._jobs, reverse=True)]
        return self._rows

    def _live(self) -> list[Job]:
        return [entry.job for entry in self._jobs.values() if entry.job is not None]

    def _read_changes(self) -> None:
        newest = self._changes.now()
        if self._revision is None:  # at first, or after a walk that failed
            self._forget()
            # a record that is repaired in between is in both
            self._damaged = {job_id for job_id, _ in self._store.damaged()}
            self._again |= self._damaged
            for job in self._store.walk():
                self._put(job)
        else:
            self._read(self._changes.since(self._revision))
        self._revision = newest
        with self._noting:
            noted, self._noted = self._noted, {}
        for job in noted.values():
            self._put(job)

    def _read(self, ids: Iterable[str]) -> None:
        for job_id in {*ids, *self._again}:
            self._again.add(job_id)  # until it is read
            try:
                self._put(self._store.peek(job_id))
            except NotFound:
                self._drop(int(job_id))
                self._gone.add(int(job_id))
            except DamagedRecord:  # perhaps until it is repaired
                self._drop(int(job_id))
                self._damaged.add(job_id)
                continue
            except StoreError:  # the store does not answer: its row stays as it was
                continue
            self._again.discard(job_id)
            self._damaged.discard(job_id)

    def _put(self, job: Job) -> None:
        number = int(job.id)
        previous = self._jobs.get(number)
        if number in self._gone or (previous is not None and previous.version >= job.version):
            return
        if previous is not None:
            self._count(previous.listed, -1)
        row = full = b""
        if job.state.final:
            # a final job changes no more
            whole, row = job_in_full(job), self._marshalled(job)
            full = self._marshalled(whole) if whole is not job else b""
        entry = _Entry(listed(job), job.version, None if row else job, row, full)
        if job.group:
            self._elements.setdefault(int(job.group), set()).add(number)
        self._jobs[number] = entry
        self._count(entry.listed, 1)
        self._rows = None

    def _count(self, row: IndexedJob, by: int) -> None:
        if row.group:
            self._counts[row.group][row.state] += by
        group = self._jobs.get(row.group or row.number)
        if group and group.listed.is_group and not group.listed.state.final:
            counts = self._counts[group.listed.number]
            group.listed.state = next((s for s in _AT_WORK if counts[s] > 0), State.QUEUED)

    def _marshalled(self, job: Job) -> bytes:
        shown = job_row(job, NOTHING, self._clock.now(), mine=False)
        return marshal.dumps(cast(Any, shown))

    def _drop(self, number: int) -> None:
        previous = self._jobs.pop(number, None)
        if previous is None:
            return
        self._count(previous.listed, -1)
        self._elements.pop(number, None)
        self._elements.get(previous.listed.group, set()).discard(number)
        self._rows = None

    def _watch(self) -> None:
        """Update the rows with the progress of running programs."""
        for entry in self._jobs.values():
            if (job := entry.job) is None:
                continue
            live = self._knowledge.going(job)
            progress, moved_at = (live.progress, live.moved_at) if live else (None, None)
            if (progress, moved_at) == (entry.progress, entry.moved_at):
                continue
            entry.progress, entry.moved_at = progress, moved_at
            has, row = job_progress(job, progress), entry.listed
            row.step, row.loss = has.step, has.loss
            row.left = pace.seconds_left(has, speed(job, has, moved_at))


def _chosen(row: JobRow, query: ParsedQuery) -> JobRow:
    if query.fields is None:
        return row
    chosen = {name: value for name, value in row.items() if name in query.fields or name == "id"}
    return cast(JobRow, chosen)
