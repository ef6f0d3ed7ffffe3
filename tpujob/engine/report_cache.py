"""Cache of the hosts' reports of all jobs: one list of an owner's folder serves every tick of some seconds.

It also removes reports of ended attempts, so that a list is as short as that of live jobs.
"""

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.host import reports
from tpujob.domain.host.series import read_curves
from tpujob.domain.model import Job
from tpujob.domain.money import polling_cost
from tpujob.errors import NotFound, StoreError, TpujobError, Transient
from tpujob.ports import Blob, Blobs, Clock
from tpujob.protocol import limits, paths

#: seconds for one call
TIMEOUT = 10.0

#: returns the key with which the hosts of that attempt of that job sign; None: no record has the attempt
KeyOf = Callable[[str, int], str | None]

log = logging.getLogger(__name__)

#: seconds between two looks at whether another thread has made a list
TURN = 0.1
#: seconds for which a folder is listed after a tick asked for it last
ASKED = 30.0
#: seconds after which a report of an attempt that is over is removed: its agent may still try to write
STALE = 600.0

_Key = tuple[str, int]  #: folder of the job, attempt


@dataclass(slots=True)
class ReportList:
    """The reports below one place, as they were at one moment."""

    at: float  #: by this process's clock
    storage_at: float  #: by the storage's
    objects: int = 0
    found: dict[_Key, list[Blob]] = field(default_factory=dict[_Key, list[Blob]])

    def storage_now(self, now: float) -> float:
        return self.storage_at + max(0.0, now - self.at)

    def age(self, now: float) -> float:
        """Return its age in seconds; very many if it is from the future, as a clock was set back."""
        return now - self.at if now >= self.at else math.inf

    def news(self, before: "ReportList") -> set[str]:
        """Return the jobs whose hosts seem to have come to an end, or to have had a notice, since an earlier list."""
        return {
            paths.job_id(key[0])
            for key, blobs in self.found.items()
            if _turned(blobs, before.found.get(key, []))
        }


def _turned(blobs: Sequence[Blob], before: Sequence[Blob]) -> bool:
    if [b.generation for b in blobs] == [b.generation for b in before]:
        return False
    now, then = (sorted(reports.signals(b.metadata) for b in listed) for listed in (blobs, before))
    return now != then


class ReportCache:
    """Threads may share it: one makes a new list while the others use the one before, or, where that is too old, wait
    for it. A storage that is slow would only get slower if each of them asked."""

    def __init__(self, blobs: Blobs, clock: Clock, prices: PriceList = LIST) -> None:
        self._blobs, self._clock, self._prices = blobs, clock, prices
        self._lists: dict[str, ReportList] = {}
        self._asked: dict[str, float] = {}  #: when a tick asked for a folder last
        self._making: set[str] = set()
        self._lock = threading.Lock()
        #: is called with the jobs of which there is news, as soon as a list shows it
        self.news: Callable[[str], None] = lambda _: None

    def reports_of(self, job: Job, *, timeout: float) -> tuple[Sequence[Blob], float]:
        """Return the objects where hosts of the newest attempt report, as of some seconds ago, and the storage's time
        now. Raises Transient, Refused."""
        attempt = job.attempt
        assert attempt is not None, f"job {job.id} has no attempt in state {job.state}"
        root = paths.reports_root(job.workdir)
        self._asked[root] = self._clock.now()
        newest = self._newest(root, timeout)
        key = paths.job_folder(job.workdir), attempt.number
        return newest.found.get(key, ()), newest.storage_now(self._clock.now())

    def refresh(self) -> None:
        """List again what ticks have asked for lately, so that `news` tells of an end before the next tick. What cannot
        be read here is left to the ticks, which say so."""
        for root in self._used():
            lasts = max(polling_cost.UNASKED, self._lasts())
            listed = self._lists.get(root)
            if listed and listed.age(self._clock.now()) >= lasts and self._begin(root):
                with contextlib.suppress(TpujobError):
                    self._renew(root, TIMEOUT)

    def _newest(self, root: str, timeout: float) -> ReportList:
        end = self._clock.now() + timeout
        while True:
            listed, now = self._lists.get(root), self._clock.now()
            if listed is not None and listed.age(now) < self._lasts():
                return listed
            if self._begin(root):
                return self._renew(root, timeout)
            if listed is not None and listed.age(now) < 2 * self._lasts():
                return listed
            if now >= end:
                raise Transient("the reports are still being listed")
            self._clock.sleep(TURN)

    def _lasts(self) -> float:
        """Return the seconds for which a list serves: the longer, the more pages all that are in use have."""
        pages = (
            1 + listed.objects // polling_cost.PAGE
            for root in self._used()
            if (listed := self._lists.get(root))
        )
        return polling_cost.seconds_between_lists(sum(pages), self._prices)

    def _used(self) -> list[str]:
        """Return the folders that ticks have asked for lately."""
        now = self._clock.now()
        return [root for root, at in self._asked.copy().items() if now - at < ASKED]

    def _begin(self, root: str) -> bool:
        """Return whether the caller makes the next list, until it is no longer `_making`."""
        with self._lock:
            free = root not in self._making
            self._making.add(root)
            return free

    def _renew(self, root: str, timeout: float) -> ReportList:
        """Make a list, after `_begin`."""
        listed, began = self._lists.get(root), self._clock.now()
        try:
            blobs = self._blobs.list(root, timeout=timeout)
            passed = self._clock.now() - began
            storage_at = self._blobs.clock(timeout=timeout) - passed
            made = ReportList(began, storage_at, len(blobs))
            for blob in blobs:
                about = paths.read_report_path(root, blob.path)
                if about is not None:
                    made.found.setdefault(about[:2], []).append(blob)
            self._lists[root] = made
        finally:
            self._making.discard(root)
        for job_id in made.news(listed) if listed is not None else ():
            self.news(job_id)
        return made

    # What is over ----------------------------------------------------------------------------------------------------

    def tidy(self, live: Iterable[Job], key_of: KeyOf) -> None:
        """Remove the reports of attempts that are over, wherever these jobs report; of each the newest of host 0 is
        kept beside the job's other objects. What fails is left for the next time, and so are reports of a job whose
        record cannot be read. Safe to repeat, and beside another process."""
        jobs = {paths.job_folder(job.workdir): job for job in live}
        for root in sorted({paths.reports_root(w) for job in jobs.values() for w in job.workdirs}):
            try:
                self._tidy(root, jobs, key_of)
            except TpujobError as error:
                log.info("reports below %s are tidied later: %s", root, error)

    def _tidy(self, root: str, jobs: Mapping[str, Job], key_of: KeyOf) -> None:
        if not self._begin(root):
            return
        newest = self._renew(root, TIMEOUT)
        for (folder, number), blobs in newest.found.items():
            job = jobs.get(folder)
            if job is None or job.attempt is None or job.attempt.number != number:
                over = [blob for blob in blobs if newest.storage_at - blob.updated > STALE]
                try:
                    key = key_of(paths.job_id(folder), number) if over else None
                except StoreError as error:  # a damaged record: the attempt may go on
                    log.info("reports below %s%s/ stay: %s", root, folder, error)
                else:
                    self._archive(root, folder, number, over, key or "")

    def _archive(
        self, root: str, folder: str, attempt: int, blobs: Sequence[Blob], key: str
    ) -> None:
        """Keep that of host 0, unless a newer one is kept already, and remove these objects. `key`: with which the
        hosts sign; empty: no record has the attempt."""
        workdir = f"{root.removesuffix('/reports/')}/jobs/{folder}"
        target, own = (
            paths.kept_report_path(workdir, attempt, 0),
            f"{root}{folder}/{attempt}/host-0",
        )
        for blob in blobs:
            if blob.path == own:
                with contextlib.suppress(NotFound):  # another process is at it
                    body = self._body(own)
                    if self._is_newer(body, target, key):
                        self._blobs.put(target, body, metadata=blob.metadata, timeout=TIMEOUT)
            self._blobs.delete(blob.path, timeout=TIMEOUT)

    def _body(self, path: str) -> bytes:
        return self._blobs.get(path, end=limits.MAX_BODY, timeout=TIMEOUT)

    def _is_newer(self, body: bytes, path: str, key: str) -> bool:
        """Return whether a body is newer than what is kept, or nothing is."""
        try:
            kept_body = self._body(path)
        except NotFound:
            return True
        new, old = read_curves(body, key), read_curves(kept_body, key)
        return new is not None and (old is None or new.number > old.number)
