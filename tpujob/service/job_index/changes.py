"""One follower of the store, many listeners: callers that wait for a change of a job wait here.

One thread reads the store while there are listeners, and ends soon after. Where the store announces changes, the thread
reads at each announcement. A listener gets a hint to fetch the job again, never the change itself. Hints may be late or
needless.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import contextmanager
from typing import Any

from tpujob.domain.events import Event
from tpujob.domain.model import Job
from tpujob.errors import TpujobError
from tpujob.lib.lru import LruDict
from tpujob.ports import Store

log = logging.getLogger(__name__)

#: seconds between two reads of a store that announces changes: an announcement may be lost in an outage
ANNOUNCED_INTERVAL = 30.0
#: seconds after which a read that has not come back counts as one that failed
HANGS = 5.0


class Changes:
    """Thread-safe. Change numbers are the store's: they grow, and mean the same after a restart."""

    def __init__(
        self, store: Store, *, interval: float = 0.5, clock: Callable[[], float] = time.time
    ) -> None:
        """`interval`: seconds between two reads of a store that does not announce changes."""
        self._store, self._interval, self._clock = store, interval, clock
        self._changed = threading.Condition()
        self._here = threading.local()
        self._beginning = threading.Lock()
        self._poked = threading.Event()
        self._listeners = 0
        self._follower: threading.Thread | None = None
        self._telling = False  #: the store tells the follower of changes
        self._asked: float | None = None  #: when the follower began the read that goes on
        self._failed: float | None = None  #: since when its reads have failed
        self._seen: int | None = None  #: the store was followed up to this change; None: not yet
        self._began = 0  #: from where on it was followed: what any job did before is not known
        #: of each job that changed since, its last change or a later number; the latest come last
        self._last: dict[str, int] = {}

    @contextmanager
    def followed(self) -> Generator[None]:
        """Within it, `now` does not read the store in this thread, but returns what the follower has seen. For callers
        that look again because the follower saw a change."""
        self._here.followed = True
        try:
            yield
        finally:
            self._here.followed = False

    @property
    def is_followed(self) -> bool:
        """Whether this thread is within `followed`, and there is what was seen."""
        return self._seen is not None and getattr(self._here, "followed", False)

    @property
    def failing(self) -> float | None:
        """Since when the store fails, in seconds since the epoch; None: it answers, or is not followed."""
        since, asked = self._failed, self._asked
        if since is None and asked is not None and self._clock() - asked >= HANGS:
            since = asked
        return since

    @property
    def seen(self) -> int:
        """The change up to which the store was followed; 0: it was not."""
        return self._seen or 0

    def now(self) -> int:
        """The newest change: pass it as `after` to wait for what comes next. Asks the store."""
        if self.is_followed:
            return self.seen
        newest, ids = self._ask()
        self._note(newest, ids)
        return newest

    def since(self, after: int) -> list[str]:
        """Return the ids of jobs that changed after `after`, as far as `now` or `wait` saw; perhaps some more.
        `after`: a number that `now` or `wait` returned. Does not read the store."""
        with self._changed:
            found: list[str] = []
            for job_id, number in reversed(self._last.items()):
                if number <= after:
                    break
                found.append(job_id)
        return found

    def wait(self, job_id: str | None, after: int, timeout: float) -> int:
        """Block until that job, or any, may have changed after `after`, for at most `timeout` seconds. Returns what to
        pass as `after` next time; it is larger if and only if there may be news."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._listeners += 1
            self._follow()
            try:
                while not self._news(job_id, after):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return after
                    self._changed.wait(left)
                return self._seen or 0
            finally:
                self._listeners -= 1

    def changed(self, job_id: str, after: int) -> bool:
        """Whether that job may have changed after `after`, as far as the store was followed; empty: any job. Does not
        read the store."""
        return self._news(job_id or None, after)

    def poke(self) -> None:
        """Notify the listeners now of a commit in this process."""
        self._poked.set()

    def _news(self, job_id: str | None, after: int) -> bool:
        if job_id is None:
            return (self._seen or 0) > after
        return self._last.get(job_id, self._began) > after

    # The follower ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Called with the condition held. Afterwards the thread runs; it reads at once, unless the store announces."""
        if not self._telling:
            self._poked.set()
        if self._follower is None:
            self._follower = threading.Thread(target=self._run, name="watch", daemon=True)
            self._follower.start()

    def _run(self) -> None:
        stop = self._subscribe()
        self._telling = stop is not None
        while self._wanted():
            self._poked.clear()
            self._look()
            self._poked.wait(
                ANNOUNCED_INTERVAL if stop and self._failed is None else self._interval
            )
        if stop:
            stop()

    def _wanted(self) -> bool:
        with self._changed:
            if not self._listeners:  # none came within the interval, either
                self._follower, self._telling, self._failed = None, False, None
            return bool(self._listeners)

    def _subscribe(self) -> Callable[[], None] | None:
        """Ask the store to announce changes. Return the function that ends that; None: it cannot."""
        try:
            return self._store.follow(self.poke)
        except TpujobError as error:
            log.warning("the store does not tell of changes: %s", error)
            return None

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
        """What has changed since the store was asked last; at first, nothing has."""
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


# Records of open pages -----------------------------------------------------------------------------------------------


MOST = 500  #: answers of the store that are kept


class Records:
    """Thread-safe. Asks the store each time, except for threads within `Changes.followed`: what these get is as new as
    what the follower has seen."""

    def __init__(self, store: Store, changes: Changes) -> None:
        self._store, self._changes = store, changes
        self._lock = threading.Lock()
        #: with the change that it is as new as
        self._kept: LruDict[Hashable, tuple[int, object]] = LruDict(MOST)

    def get(self, job_id: str) -> Job:
        """As `Store.get`."""
        return self._read(job_id, None, lambda: self._store.get(job_id))

    def events(self, job_id: str, after: int) -> list[Event]:
        """As `Store.events`."""
        return self._read(job_id, after, lambda: self._store.events(job_id, after=after))

    def _read(self, job_id: str, what: Hashable, read: Callable[[], Any]) -> Any:
        if not self._changes.is_followed:
            return read()
        key = job_id, what
        with self._lock:
            known = self._kept.get(key)
        if known and not self._changes.changed(job_id, known[0]):
            return known[1]
        seen = self._changes.seen  # before it is read: what is committed meanwhile is read again
        found = read()
        with self._lock:
            self._kept[key] = seen, found
        return found
