"""Objects of shipped code in a bucket, named by their content and shared by jobs. An object is removed with the last
job whose record names it.

A submission may use an object while another job is cleaned. No clock decides. A submission stores the record first and
touches its objects then (`hold`). A cleaner lists the objects first, reads the records then, and deletes only objects
that were not touched since. So either the cleaner reads the record, or its deletion fails, or `hold` finds that the
object is gone, and the code is sent again.
"""

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping

from tpujob.domain.model import DesiredState, Job
from tpujob.errors import Conflict, NotFound, Transient
from tpujob.ports import Blobs, Store

log = logging.getLogger(__name__)

LOOK = 15.0  #: seconds for one call to the bucket


def shipped(job: Job) -> list[str]:
    """Return the path of every object of its code: the bundles, and the diff beside them."""
    bundles = [b if b.startswith("gs://") else f"{job.bucket}/{b}" for b in job.bundles]
    diff = job.code.diff if job.code else ""
    return [*bundles, *([diff] if diff else [])]


class Naming:
    """The jobs that name each object of shipped code, by its path. One read of all records, each of which Firestore
    bills, serves all jobs that wait to be cleaned. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._begun = self._done = 0  #: reads
        self._newest: Mapping[str, Collection[str]] | None = None

    def now(self) -> Mapping[str, Collection[str]] | None:
        """Return the names as of some time after this call; None: a record cannot be read, and may name anything.
        Raises Transient, StoreError."""
        next_read = self._begun + 1  # one that goes on may have passed the record in question
        with self._lock:
            if self._done < next_read:
                self._begun += 1
                self._newest = self._read()
                self._done = self._begun
            return self._newest

    def _read(self) -> Mapping[str, Collection[str]] | None:
        if self._store.damaged():
            return None
        names = defaultdict[str, set[str]](set)
        for job in self._store.list():
            if job.desired is not DesiredState.CLEAN:
                for path in shipped(job):
                    names[path].add(job.id)
        return names


class Bundles:
    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._blobs, self._naming = blobs, Naming(store)

    def check(self, job: Job) -> None:
        """Raises NotFound unless everything that a new job names exists."""
        for path in shipped(job):
            if all(blob.path != path for blob in self._blobs.list(path, timeout=LOOK)):
                raise _gone(path)

    def hold(self, job: Job) -> None:
        """Protect the code of a job that is already stored: no other job's end removes it afterwards. Raises NotFound
        when one just did. If the bucket does not answer, or allows no more changes of one object for now, only this
        protection is lost, so nothing is raised."""
        for path in shipped(job):
            try:
                self._blobs.touch(path, timeout=LOOK)
            except NotFound as error:
                raise _gone(path) from error
            except Transient as error:
                log.warning("job %s: %s is not held: %s", job.id, path, error)

    def remove(self, job: Job) -> None:
        """Remove what this job names and no other job may still need. Safe to repeat."""
        objects = [
            blob
            for path in shipped(job)
            for blob in self._blobs.list(path, timeout=LOOK)
            if blob.path == path
        ]
        naming = self._naming.now() if objects else None
        if naming is None:
            return
        for blob in objects:
            if not {*naming.get(blob.path, ())} - {job.id}:
                with contextlib.suppress(Conflict):  # a job has just been made of it
                    self._blobs.delete(blob.path, unchanged=blob, timeout=LOOK)


def _gone(path: str) -> NotFound:
    return NotFound(
        f"the code of the job is not in the bucket: {path}",
        hint="It was removed with another job, or never sent: send it again.",
    )
