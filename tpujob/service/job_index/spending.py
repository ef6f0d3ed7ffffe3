"""Reports of costs, read as quickly as the active jobs: a final job changes no more, and is summed once.

They equal what `domain/money/report.py` computes from all records, which are too many to read at each request.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tpujob.domain.model import Grant, Job, Slice
from tpujob.domain.money import ledger, report
from tpujob.domain.money.period import ALWAYS, Period, day_of
from tpujob.domain.money.report import CostReport, Grouping, Place, Row
from tpujob.errors import NotFound, StoreError
from tpujob.lib.lru import LruDict
from tpujob.ports import Store
from tpujob.service.job_index.index import JobIndex

CACHED_QUERIES = 8  #: queries whose sums are kept: by job, some 2 kB a job


class _Granted(NamedTuple):
    """The facts of an ended job from which its slices that a grant pays for are derived."""

    id: str
    grants: tuple[Grant, ...]
    slices: tuple[Slice, ...]


@dataclass(slots=True)
class _Sums:
    """The sums over ended jobs."""

    rows: dict[Place, Row] = field(default_factory=dict[Place, Row])
    copies: Counter[str] = field(
        default_factory=Counter[str]
    )  #: micro-dollars by the day of their start


class EndedSpending:
    """Thread-safe. One caller at a time reads the store."""

    def __init__(self, store: Store, index: JobIndex) -> None:
        self._store, self._index = store, index
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._versions: dict[int, int] = {}  #: of the jobs that are summed
        self._granted: dict[int, _Granted] = {}
        self._covered: frozenset[tuple[str, str]] = frozenset()  #: slices of these
        self._sums: LruDict[tuple[Grouping, str], _Sums] = LruDict(CACHED_QUERIES)

    def unreadable(self) -> list[str]:
        """Return the ids of the jobs whose records cannot be read, and which no report includes."""
        return self._index.unreadable()

    def report(
        self, by: Grouping, user: str, now: float, period: Period = ALWAYS
    ) -> tuple[CostReport, int]:
        """Return the report of all jobs, or of one user's, and the micro-dollars of their copies into other regions
        that began in the period. A job that changes just now may be missing until the next call."""
        by = by._replace(days=bool(period))  # one sum serves every period
        with self._lock:
            live, ended, gone = self._index.split()
            kept = ((n, version) for n, version in self._versions.items() if n not in gone)
            if any(ended.get(number) != version for number, version in kept):
                self._forget()  # one goes on after all
            covered = self._include((by, user), live, ended, gone, now)
            sums = self._sums[by, user]
            self._sums.move_to_end((by, user))
            selected = _of(live, user)
            part = report.report(selected, now, by, covered)
            whole = report.merged(by, sums.rows, part.rows)
            copies = sums.copies + _copies(selected)
        summary = report.of_period(whole, period) if period else whole
        return summary, sum(micros for day, micros in copies.items() if period.has(day))

    def _include(
        self,
        query: tuple[Grouping, str],
        live: list[Job],
        ended: Mapping[int, int],
        gone: set[int],
        now: float,
    ) -> Collection[tuple[str, str]]:
        """Bring every sum up to date with the jobs that have ended, and make that of `query`. Returns the slices of
        all jobs that a grant pays for."""
        first = query not in self._sums
        missing = gone - self._versions.keys()
        removed = self._store.removed() if first or missing else []
        jobs = [*(self._store.walk() if first else self._new(ended))]
        jobs = [job for job in jobs if ended.get(int(job.id)) == job.version]
        here = {*ended, *(int(job.id) for job in live)}
        jobs += [job for job in removed if int(job.id) not in here]
        new = [job for job in jobs if int(job.id) not in self._versions]
        granted = {int(j.id): _Granted(j.id, j.grants, j.slices) for j in new if j.grants}
        covered = ledger.covered([*self._granted.values(), *granted.values(), *live])
        if self._covered != frozenset(key for key in covered if int(key[0]) in self._granted):
            self._forget()  # a slice turned out to have been gone earlier than it seemed
            return self._include(query, live, ended, gone, now)
        self._granted |= granted
        self._covered = frozenset(key for key in covered if int(key[0]) in self._granted)
        self._versions |= dict.fromkeys(missing, 0) | {int(job.id): job.version for job in new}
        if first:
            self._sums[query] = _Sums()
        for key, sums in self._sums.items():
            _add(sums, key, jobs if first and key == query else new, now, covered)
        return covered

    def _new(self, ended: Mapping[int, int]) -> Iterator[Job]:
        for number in ended:
            if number not in self._versions:
                with contextlib.suppress(NotFound, StoreError):  # removed meanwhile, or damaged
                    yield self._store.peek(f"{number:06d}")


def _add(
    sums: _Sums,
    query: tuple[Grouping, str],
    jobs: Iterable[Job],
    now: float,
    covered: Collection[tuple[str, str]],
) -> None:
    by, user = query
    selected = _of(jobs, user)
    part = report.report(selected, now, by, covered)
    joined = report.merged(by, sums.rows, part.rows)
    sums.rows = {row.place: row for row in joined.rows}
    sums.copies += _copies(selected)


def _of(jobs: Iterable[Job], user: str) -> list[Job]:
    return [job for job in jobs if user in ("", job.user)]


def _copies(jobs: Iterable[Job]) -> Counter[str]:
    micros = Counter[str]()
    for copy in (copy for job in jobs for copy in job.copies):
        micros[day_of(copy.started_at)] += copy.micros
    return micros
