"""One follower of the store, many listeners: callers that wait for a change of a job wait here.

One thread reads the store while there are listeners, and ends soon after. A listener gets a hint to fetch the job
again, never the change itself. Hints may be late or needless.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Job
from tpujob.errors import TpujobError
from tpujob.lib.lru import LruDict
from tpujob.lib.threads import start_loop
from tpujob.ports import Store

log = logging.getLogger(__name__)

#: seconds after which a read that has not come back counts as one that failed
HANGS = 5.0


class Changes:
    """Thread-safe. Change numbers are the store's: they grow, and mean the same after a restart."""

    def __init__(
        self, store: Store, *, interval: float = 0.5, clock: Callable[[], float] = time.time
    ) -> None:
        """`interval`: seconds between two reads of the store, unless this process changes a job."""
        self._store, self._interval, self._clock = store, interval, clock
        self._changed = threading.Condition()
        self._beginning = threading.Lock()
        self._poked = threading.Event()
        self._listeners = 0
        self._follower: threading.Thread | None = None
        self._asked: float | None = None  #: start of the read in progress
        self._failed: float | None = None  #: since when its reads have failed
        self._seen: int | None = None  #: the store was followed up to this change; None: not yet
        self._began = 0  #: from where on it was followed: what any job did before is not known
        #: of each job that changed since, its last change or a later number; the latest come last
        self._last: dict[str, int] = {}

    @property
    def failing(self) -> float | None:
        """The time since which the store fails, in seconds since the epoch; None: it answers, or is not followed."""
        since, asked_at = self._failed, self._asked
        if since is None and asked_at is not None and self._clock() - asked_at >= HANGS:
            since = asked_at
        return since

    def now(self) -> int:
        """Return the newest change: pass it as `after` to wait for later ones. Reads the store."""
        newest, ids = self._ask()
        self._note(newest, ids)
        return newest

    def since(self, after: int) -> list[str]:
        """Return the ids of jobs that changed after `after`, as far as `now` or `wait` saw; perhaps some more.
        `after`: a number that `now` or `wait` returned. Does not read the store."""
        with self._changed:
            ids: list[str] = []
            for job_id, number in reversed(self._last.items()):
                if number <= after:
                    break
                ids.append(job_id)
        return ids

    def wait(self, job_id: str | None, after: int, timeout: float) -> int:
        """Block until that job, or any, may have changed after `after`, for at most `timeout` seconds. Returns what to
        pass as `after` next time; it is larger if and only if there may be news."""
        with self._changed:
            self._listeners += 1
            self._follow()
            try:
                heard = self._changed.wait_for(lambda: self._news(job_id, after), timeout)
                return self._seen or 0 if heard else after
            finally:
                self._listeners -= 1

    def poke(self) -> None:
        """Notify the listeners now of a commit in this process."""
        self._poked.set()

    def _news(self, job_id: str | None, after: int) -> bool:
        if job_id is None:
            return (self._seen or 0) > after
        return self._last.get(job_id, self._began) > after

    # The follower ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Make sure that the thread runs and reads at once. Called with the condition held."""
        self._poked.set()
        if self._follower is None:
            self._follower = start_loop("watch", self._run)

    def _run(self) -> None:
        while self._wanted():
            self._poked.clear()
            self._look()
            self._poked.wait(self._interval)

    def _wanted(self) -> bool:
        with self._changed:
            if not self._listeners:  # none came within the interval, either
                self._follower = self._failed = None
            return bool(self._listeners)

    def _look(self) -> None:
        self._asked = self._clock()
        try:
            newest, ids = self._ask()
        except TpujobError as error:
            if self._failed is None:
                log.warning("cannot follow the store: %s", error)
                self._failed = self._asked
        else:
            if self._failed is not None:
                log.warning("the store is followed again")
            self._failed = None
            self._note(newest, ids)
        finally:
            self._asked = None

    def _ask(self) -> tuple[int, Iterable[str]]:
        """Return what has changed since the store was last read; nothing the first time."""
        with self._beginning:
            if self._seen is None:
                self._seen = self._began = self._store.newest()
                with self._changed:  # who knows of less than that has news
                    self._changed.notify_all()
        return self._store.changes(self._seen)

    def _note(self, newest: int, ids: Iterable[str]) -> None:
        with self._changed:
            if self._seen is None or newest > self._seen:
                for job_id in ids:
                    self._last.pop(job_id, None)
                    self._last[job_id] = newest
                self._seen = newest
                self._changed.notify_all()


# Events of one job ---------------------------------------------------------------------------------------------------


CACHED_LISTS = 500  #: lists of events that are kept


class EventReader:
    """Reads the events of a job once for each version of its record, however many pages show them. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: LruDict[tuple[str, int, int], list[Event]] = LruDict(CACHED_LISTS)

    def read(self, job: Job, after: int) -> list[Event]:
        """Return the events of a job that was just read, like `Store.events`, without a watch that only renews the one
        before it."""
        key = job.id, job.version, after
        with self._lock:
            cached = self._kept.get(key)
        if cached is None:
            events = self._store.events(job.id, after=max(0, after - 1))
            pairs = zip([None, *events], events, strict=False)
            cached = [e for before, e in pairs if e.seq > after and not _renews(e, before)]
            with self._lock:
                self._kept[key] = cached
        return cached


def _renews(event: Event, before: Event | None) -> bool:
    """Return whether an event only renews the one before it, as watches of silent hosts do each minute."""
    same = before is not None and event.text == before.text
    return same and event.kind is EventKind.WATCHED
