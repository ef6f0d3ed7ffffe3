"""A cache of all jobs that this process has read or written, or that the stream of changes has delivered.

The cache may be a moment old and never goes back: the newer of two versions stays, and a removed job does not return.
It answers only while the stream works; otherwise the caller reads the database.
"""

import threading
from typing import Any

from tpujob.adapters import records as store_records
from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.records import Doc
from tpujob.domain.model import Job


class Mirror:
    """The cache of jobs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs = store_records.Decoded()
        #: by job: its newest version, and when that is due; None: never
        self._wakes: dict[str, tuple[int, float | None]] = {}
        self._removed: set[str] = set()  #: ids of removed jobs, never used again
        self.reader = store_records.RecordReader[Doc](self.read, lambda doc: doc.id)
        self._current = False  #: the stream works, so that the cache is a moment old at most
        self._complete = False  #: `_wakes` has every job that will ever be due
        self._numbers: dict[str, int] = {}  #: by job: number of its last change, if after `floor`
        self._pending: dict[str, int] = {}  #: the same, of changes since the last `note_caught_up`
        #: number of the moment after which the stream delivers all changes; 0: it has not begun
        self.floor = 0

    # Reads ------------------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job | None:
        """Return the job as it was a moment ago; None: not in the cache."""
        with self._lock:
            return self._jobs.get(job_id) if self._current else None

    def due(self, now: float) -> list[str] | None:
        """Return the jobs that are due; None: the cache does not know them all."""
        with self._lock:
            if not (self._current and self._complete):
                return None
            wakes = [(wake, id) for id, (_, wake) in self._wakes.items() if wake is not None]
        return [id for wake, id in sorted(wakes) if wake <= now]

    def changes(self, after: int) -> tuple[int, list[str]] | None:
        """Return the newest change and the jobs changed after `after`; None: the cache does not know them all."""
        with self._lock:
            if not self._current or after < self.floor:
                return None
            new = sorted((n, job_id) for job_id, n in self._numbers.items() if n > after)
        return (new[-1][0] if new else after), [job_id for _, job_id in new]

    def newest(self) -> int | None:
        """Return the number of the newest change; None: not in the cache."""
        with self._lock:
            return max(self._numbers.values(), default=self.floor) if self._current else None

    # Writes -----------------------------------------------------------------------------------------------------------

    def keep(self, job: Job) -> Job:
        """Cache a version that any process has stored, unless a newer one is cached. Returns the job."""
        with self._lock:
            newest = self._wakes.get(job.id, (0, None))[0]
            if job.id in self._removed or job.version < newest:
                return job
            self._jobs.keep(job)
            self._wakes[job.id] = (job.version, store_records.wake_time(job))
        return job

    def read(self, doc: Doc) -> Job:
        """Return the job of a document, decoded only if its version is not cached. Raises StoreError for a damaged
        document, NotFound for a tombstone."""
        with self._lock:
            cached = self._jobs.get(doc.id)
        if cached and cached.version == doc.fields.get("version"):
            return cached
        return self.keep(records.parse_job(doc))

    def note_removal(self, job_id: str) -> None:
        with self._lock:
            self._removed.add(job_id)
            self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        self._jobs.drop(job_id)
        self._wakes.pop(job_id, None)

    # Calls of the stream ---------------------------------------------------------------------------------------------

    def restart(self, floor: int) -> None:
        """Empty the cache. The stream delivers the changes after `floor`; those before may have been missed."""
        with self._lock:
            for cache in (self._jobs, self._wakes, self._numbers, self._pending):
                cache.clear()
            self.floor = floor
            self._current = False
            self._complete = False

    def note_change(self, doc: Doc) -> None:
        with self._lock:
            self._pending[doc.id] = doc.changed_us
        if records.is_removed(doc):
            self.note_removal(doc.id)
        elif not self.reader.readable([doc]):
            with self._lock:
                self._drop(doc.id)

    def note_deletion(self, name: Any) -> None:
        """Drop a job whose document was deleted by hand: tpujob itself leaves a tombstone."""
        with self._lock:
            self._drop(str(name).rpartition("/")[2])

    def note_caught_up(self) -> bool:
        """Note that the stream has delivered every change until now. Returns whether `note_complete` is needed."""
        with self._lock:
            self._current = True
            self._numbers.update({job: n for job, n in self._pending.items() if n > self.floor})
            self._pending.clear()
            return not self._complete

    def note_complete(self) -> None:
        """Note that all jobs that will ever be due have been read."""
        with self._lock:
            self._complete = True

    def note_broken(self) -> None:
        with self._lock:
            self._current = False
