"""A cache of the jobs in one process: every record that it read or wrote, or that the stream delivered.

It may be a moment old and never goes back: of two versions the newer one stays, and a removed job does not return. It
answers only while the stream works; otherwise the caller asks the database.
"""

import threading
from typing import Any

from tpujob.adapters import records as store_records
from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.records import Found
from tpujob.domain.model import Job


class Mirror:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs = store_records.Decoded()
        #: for each job, a version and when that is due; None: never
        self._wakes: dict[str, tuple[int, float | None]] = {}
        self._gone: set[str] = set()  #: removed; an id never comes back
        self.reader = store_records.RecordReader[Found](self.read, lambda doc: doc.id)
        self._current = False  #: the stream works: this is as new as the database, or nearly
        self._complete = False  #: and no job that is ever due is missing in `_wakes`
        self._numbers: dict[str, int] = {}  #: of each job, its last change, if after `floor`
        self._heard: dict[str, int] = {}  #: the same; other changes of that moment may be missing
        #: the stream delivers all that changed after this moment; 0: it has not begun
        self.floor = 0

    # Ask -------------------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job | None:
        """The job as it was a moment ago; None: not known."""
        with self._lock:
            return self._jobs.get(job_id) if self._current else None

    def due(self, now: float) -> list[str] | None:
        """As the port says; None: not known."""
        with self._lock:
            if not (self._current and self._complete):
                return None
            wakes = [(wake, id) for id, (_, wake) in self._wakes.items() if wake is not None]
        return [id for wake, id in sorted(wakes) if wake <= now]

    def changes(self, after: int) -> tuple[int, list[str]] | None:
        """As the port says; None: not known."""
        with self._lock:
            if not self._current or after < self.floor:
                return None
            new = sorted((n, job_id) for job_id, n in self._numbers.items() if n > after)
        return (new[-1][0] if new else after), [job_id for _, job_id in new]

    def newest(self) -> int | None:
        """As the port says; None: not known."""
        with self._lock:
            return max(self._numbers.values(), default=self.floor) if self._current else None

    # Tell ------------------------------------------------------------------------------------------------------------

    def keep(self, job: Job) -> Job:
        """Keep this version, which any process has stored."""
        with self._lock:
            known = self._wakes.get(job.id, (0, None))[0]
            if job.id in self._gone or job.version < known:
                return job
            self._jobs.keep(job)
            self._wakes[job.id] = (job.version, store_records.waking(job))
        return job

    def read(self, doc: Found) -> Job:
        """The job of a document. A version never changes, so a known one is not decoded again. Raises StoreError when
        it is damaged, NotFound when it is a tombstone."""
        with self._lock:
            known = self._jobs.get(doc.id)
        if known and known.version == doc.fields.get("version"):
            return known
        return self.keep(records.job(doc))

    def removed(self, job_id: str) -> None:
        with self._lock:
            self._gone.add(job_id)
            self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        self._jobs.drop(job_id)
        self._wakes.pop(job_id, None)

    # Calls of the stream ---------------------------------------------------------------------------------------------

    def begun(self, floor: int) -> None:
        """Forget everything: it may have changed unseen. The stream delivers what changes after this moment."""
        with self._lock:
            for known in (self._jobs, self._wakes, self._numbers, self._heard):
                known.clear()
            self.floor = floor
            self._current = self._complete = False

    def changed(self, doc: Found) -> None:
        with self._lock:
            self._heard[doc.id] = doc.changed_us
        if records.removed(doc):
            self.removed(doc.id)
        elif not self.reader.readable([doc]):
            with self._lock:
                self._drop(doc.id)

    def deleted(self, name: Any) -> None:
        """Forget a document that was deleted by hand: tpujob deletes none."""
        with self._lock:
            self._drop(str(name).rpartition("/")[2])

    def caught_up(self) -> bool:
        """Note that every change until now was delivered. Returns whether `completed` is still needed."""
        with self._lock:
            self._current = True
            self._numbers.update({j: n for j, n in self._heard.items() if n > self.floor})
            self._heard.clear()
            return not self._complete

    def completed(self) -> None:
        """Note that all jobs that will ever be due were read."""
        with self._lock:
            self._complete = True

    def broken(self) -> None:
        with self._lock:
            self._current = False
