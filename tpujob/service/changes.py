"""One follower of the store, many listeners: callers that wait for a change of a job wait here.

One thread reads the store while somebody listens, and ends soon after; where the store announces changes, it reads
when told to. A listener gets a hint to fetch the job again, never the change itself. Hints may be late or needless.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from tpujob.errors import TpujobError
from tpujob.ports import Store

log = logging.getLogger(__name__)

#: seconds between two reads of a store that announces changes: an announcement may be lost in an outage
TOLD = 30.0


class Changes:
    """Thread-safe. Change numbers are the store's: they grow, and mean the same after a restart."""

    def __init__(self, store: Store, *, interval: float = 0.5) -> None:
        """`interval`: seconds between two reads of a store that does not announce changes."""
        self._store, self._interval = store, interval
        self._changed = threading.Condition()
        self._poked = threading.Event()
        self._listeners = 0
        self._follower: threading.Thread | None = None
        self._telling = False  #: the store tells the follower of changes
        self._seen = 0  #: the store was followed up to this change
        self._last: dict[str, int] = {}  #: of each job, its last change or a later number

    def now(self) -> int:
        """The newest change: pass it as `after` to wait for what comes next. Asks the store."""
        newest, ids = self._store.changes(self._seen)
        self._note(newest, ids)
        return newest

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
                return self._seen
            finally:
                self._listeners -= 1

    def poke(self) -> None:
        """Something was committed in this process: tell the listeners now."""
        self._poked.set()

    def _news(self, job_id: str | None, after: int) -> bool:
        return (self._seen if job_id is None else self._last.get(job_id, 0)) > after

    # The follower ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Called with the condition held. Afterwards the thread runs; it reads at once, unless the store announces."""
        if not self._telling:
            self._poked.set()
        if self._follower is None:
            self._follower = threading.Thread(target=self._run, name="watch", daemon=True)
            self._follower.start()

    def _run(self) -> None:
        stop = self._told()
        self._telling = stop is not None
        while self._wanted():
            self._poked.clear()
            self._look()
            self._poked.wait(TOLD if stop else self._interval)
        if stop:
            stop()

    def _wanted(self) -> bool:
        with self._changed:
            if not self._listeners:  # nobody came within the interval, either
                self._follower, self._telling = None, False
            return bool(self._listeners)

    def _told(self) -> Callable[[], None] | None:
        """Ask the store to announce changes. Returns what ends that; None: it cannot."""
        try:
            return self._store.follow(self.poke)
        except TpujobError as error:
            log.warning("the store does not tell of changes: %s", error)
            return None

    def _look(self) -> None:
        try:
            newest, ids = self._store.changes(self._seen)
        except TpujobError as error:
            log.warning("cannot follow the store: %s", error)
            return
        self._note(newest, ids)

    def _note(self, newest: int, ids: Iterable[str]) -> None:
        with self._changed:
            if newest > self._seen:
                self._last.update(dict.fromkeys(ids, newest))
                self._seen = newest
                self._changed.notify_all()
