"""The records and events of jobs whose pages are open: pages are made again every few seconds, and the store is read
again only when the job has changed.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Any

from tpujob.domain.events import Event
from tpujob.domain.model import Job
from tpujob.lib.lru import LruDict
from tpujob.ports import Store
from tpujob.service.job_index.changes import Changes

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
