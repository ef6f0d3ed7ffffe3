"""The part of `api.JobsApi` that is about all jobs at once and about no money."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from tpujob.api import CapacityReport, EventsPage, JobEventView
from tpujob.domain.access import Principal, Role
from tpujob.domain.events import Event, EventKind
from tpujob.domain.failures.disclosure import event_in_full
from tpujob.domain.model import End, Job, State
from tpujob.domain.observations import Circuit
from tpujob.domain.paging import EVENTS, PAGE
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest, NotFound, StoreError
from tpujob.ports import Clock, EventKey, Store
from tpujob.service.backend import capacity
from tpujob.service.backend.capacity import Quotas, quotas_view
from tpujob.service.job_index import JobIndex
from tpujob.service.views import event_view

#: events that are read of the store for one page, at most: a filter that matches nothing must end
READ = 5000
_KEY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)~(\d{6,9})~(\d{1,9})")


class Overview:
    """Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        circuits: Callable[[], Mapping[str, Circuit]],
        index: JobIndex,
        allowed: Quotas | None = None,
    ) -> None:
        """`circuits`: the offers that were refused lately, for all jobs. `allowed`: None: quota cannot be read."""
        self._store, self._clock, self._circuits, self._index = store, clock, circuits, index
        self._allowed = allowed
        self._kept: Mapping[int, Job] = {}  #: records of jobs that have ended within the day

    # Events ----------------------------------------------------------------------------------------------------------

    def happened(
        self, caller: Principal, *, before: str = "", kinds: Sequence[str] = (), limit: int = EVENTS
    ) -> EventsPage:
        """Return what `JobsApi.happened` documents. Admins read the text of errors, too."""
        if not 1 <= limit <= PAGE:
            raise BadRequest(f"a page has 1 to {PAGE} events, not {limit}")
        selected, older = _kinds(kinds), ""
        events: list[tuple[str, Event]] = []
        ends = defaultdict[str, list[tuple[int, End]]](list)  #: of each job, the first one first
        begin = _read_key(before) if before else None
        for read, item in enumerate(self._events(begin, max(limit + 1, EVENTS)), 1):
            end: End | None = getattr(item[1].payload, "end", None)
            if end:
                ends[item[0]].insert(0, (item[1].seq, end))
            if item[1].kind in selected:
                if len(events) == limit:  # there is one more
                    older = _written(events[-1])
                    break
                events.append(item)
            if read == READ:
                older = _written(item)
                break
        names = self._index.names(job_id for job_id, _ in events)
        views: list[JobEventView] = []
        for job_id, stored in events:
            event = event_in_full(stored, ends[job_id]) if caller.at_least(Role.ADMIN) else stored
            name, user = names.get(job_id, ("", ""))
            views.append(JobEventView(**event_view(event), job=job_id, name=name, user=user))
        return EventsPage(events=views, next=older)

    def _events(self, before: EventKey | None, size: int) -> Iterator[tuple[str, Event]]:
        """Yield the events of all jobs, newest first; reads `size` at a time."""
        while True:
            page = self._store.recent(before=before, limit=size)
            yield from page
            if len(page) < size:
                return
            before = _key(page[-1])

    # Hardware --------------------------------------------------------------------------------------------------------

    def capacity(self) -> CapacityReport:
        """Return what `JobsApi.capacity` documents."""
        now = self._clock.now()
        live, ended, _ = self._index.split()
        jobs = [*live, *self._of_the_day(ended, now)]
        report = CapacityReport(
            at=rfc3339(now),
            day_s=capacity.DAY,
            offers=capacity.offers(jobs, now),
            closed=capacity.open_circuits(self._circuits(), now),
            waiting=sum(
                j.state in (State.QUEUED, State.PROVISIONING) and not j.spec.is_group for j in live
            ),
        )
        if self._allowed:
            report["quota"] = quotas_view(self._allowed.look(), jobs, now)
        return report

    def _of_the_day(self, ended: Mapping[int, int], now: float) -> Sequence[Job]:
        """Return the jobs that have ended within the day; `ended`: the versions of their records, each of which is read
        once."""
        jobs: dict[int, Job] = {}
        for job_id in self._index.ended_since(now - capacity.DAY):
            number = int(job_id)
            cached = self._kept.get(number)
            if cached is None or cached.version != ended.get(number):
                with contextlib.suppress(NotFound, StoreError):  # removed meanwhile, or damaged
                    cached = self._store.peek(job_id)
            if cached is not None and cached.state.final:
                jobs[number] = cached
        self._kept = jobs
        return [*jobs.values()]


def _kinds(named: Sequence[str]) -> frozenset[str]:
    every = frozenset(EventKind)
    if strange := sorted(set(named) - every):
        allowed = ", ".join(EventKind)
        raise BadRequest(f"there are no events {strange[0][:40]!r}", hint=f"There are: {allowed}.")
    return frozenset(named) or every


def _key(of: tuple[str, Event]) -> EventKey:
    job_id, event = of
    return EventKey(event.at, job_id, event.seq)


def _written(of: tuple[str, Event]) -> str:
    """Return the place of that event, as `before` of the next page."""
    at, job_id, seq = _key(of)
    return f"{at:.9f}~{job_id}~{seq}"


def _read_key(text: str) -> EventKey:
    match = _KEY.fullmatch(text)
    if match is None:
        raise BadRequest("`before` is not a place among the events", hint="Begin without `before`.")
    return EventKey(float(match[1]), match[2], int(match[3]))
