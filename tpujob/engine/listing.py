"""What hosts have reported, of all jobs at once: one look at an owner's folder serves every tick of some seconds.

A look is a list, or, where that costs less, a look at each object by its name, for as long as these say all that there
is to know. Reports of attempts that are over are removed here, so that a list stays as short as that of live jobs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.domain.host import reports
from tpujob.domain.host.hearing import Known
from tpujob.domain.model import Job
from tpujob.domain.money import looks
from tpujob.domain.prices import LIST, PriceList
from tpujob.engine.leaving import TIMEOUT, KeyOf, Leaving
from tpujob.errors import NotFound, TpujobError, Transient
from tpujob.ports import Blob, Blobs, Clock
from tpujob.protocol import paths

log = logging.getLogger(__name__)

#: seconds between two looks at whether another thread has made a listing
TURN = 0.1
#: seconds after which the sweep lists anew: it looks at what it removes once more
SWEPT = 3600.0
#: seconds for which a job's objects are looked at by name after it was last asked for
ASKED = 30.0
#: seconds after which a report of an attempt that is over is removed: its agent may still try to write
STALE = 600.0

UNKNOWN = Known()
_Key = tuple[str, int]  #: folder of the job, attempt


@dataclass(slots=True)
class Listing:
    """The reports below one place, as they were at one moment."""

    at: float  #: by this process's clock
    storage_at: float  #: by the storage's
    whole_at: float  #: when all of them were listed; since then some were looked at by name
    objects: int = 0
    found: dict[_Key, list[Blob]] = field(default_factory=dict[_Key, list[Blob]])

    @property
    def pages(self) -> int:
        return 1 + self.objects // looks.PAGE

    def storage_now(self, now: float) -> float:
        return self.storage_at + max(0.0, now - self.at)

    def age(self, now: float) -> float:
        """Seconds; very many for one of the future, as a clock was put back."""
        return now - self.at if now >= self.at else math.inf

    def news(self, before: Listing) -> set[str]:
        """The jobs whose hosts seem to have come to an end, or to have had a notice, since an earlier listing."""
        return {
            paths.job_id(key[0])
            for key, blobs in self.found.items()
            if _turned(blobs, before.found.get(key, []))
        }


def _key(job: Job, attempt: int) -> _Key:
    return paths.job_folder(job.workdir), attempt


def _turned(blobs: Sequence[Blob], before: Sequence[Blob]) -> bool:
    if [b.generation for b in blobs] == [b.generation for b in before]:
        return False
    now, then = (sorted(reports.turns(b.metadata) for b in each) for each in (blobs, before))
    return now != then


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a tick has asked for."""

    at: float  #: by this process's clock
    paths: frozenset[str]  #: the objects that say all, and those of whoever comes to speak next
    hosts: int
    until: float  #: by the storage's clock; the objects say all until then


class ReportListing:
    """Threads may share it: one makes a new listing while the others use the one before, or, where that is too old,
    wait for it. A storage that is slow would only get slower if each of them asked."""

    def __init__(self, blobs: Blobs, clock: Clock, prices: PriceList = LIST) -> None:
        self._blobs, self._clock, self._prices = blobs, clock, prices
        self._listings: dict[str, Listing] = {}
        self._asked: dict[str, dict[_Key, _Asked]] = {}
        self._making: set[str] = set()
        self._lock = threading.Lock()
        #: told of the jobs of which there is news, as soon as a listing shows it
        self.news: Callable[[str], None] = lambda _: None

    def of(
        self, job: Job, *, timeout: float, known: Known = UNKNOWN
    ) -> tuple[Sequence[Blob], float]:
        """The objects where hosts of the newest attempt report, as of some seconds ago, and the storage's time now.
        `known`: those that say all, and for how long. Raises Transient, Refused."""
        attempt = job.attempt
        assert attempt is not None, f"job {job.id} has no attempt in state {job.state}"
        if not attempt.signed:  # its agents report elsewhere
            blobs = self._blobs.list(reports.reports_prefix(job), timeout=timeout)
            return blobs, self._blobs.clock(timeout=timeout)
        root, key = paths.reports_root(job.workdir), _key(job, attempt.number)
        first = {
            f"{reports.reports_prefix(job)}{host}" for host in range(min(looks.FIRST, job.hosts))
        }
        asked = self._asked.setdefault(root, {})
        asked[key] = _Asked(self._clock.now(), known.paths | first, job.hosts, known.until)
        newest = self._newest(root, timeout, known.until)
        return newest.found.get(key, ()), newest.storage_now(self._clock.now())

    def _newest(self, root: str, timeout: float, until: float) -> Listing:
        end = self._clock.now() + timeout
        while True:
            known, now = self._listings.get(root), self._clock.now()
            # what is looked at by name says all
            whole = known is not None and known.storage_now(now) < until
            if known is not None and self._serves(known, now, whole=whole):
                return known
            if self._begun(root):
                return self._renewed(root, timeout, whole=not whole)
            if known is not None and known.age(now) < 2 * self._lasts(known):
                return known
            if now >= end:
                raise Transient("the reports are still being listed")
            self._clock.sleep(TURN)

    def _begun(self, root: str) -> bool:
        """Whether it is the caller who makes the next listing, until it is no longer `_making`."""
        with self._lock:
            free = root not in self._making
            self._making.add(root)
            return free

    def _renewed(
        self, root: str, timeout: float, *, whole: bool = False, only_by_name: bool = False
    ) -> Listing:
        """Made by whoever has `_begun`."""
        known, began = self._listings.get(root), self._clock.now()
        try:
            names = [] if whole or known is None else self._names(root, known)
            looked = self._looked(known, names, timeout) if known and names else None
            left = max(0.1, began + timeout - self._clock.now())
            made = looked or (known if known and only_by_name else self._list(root, left))
            self._listings[root] = made
        finally:
            self._making.discard(root)
        for job_id in made.news(known) if known is not None else ():
            self.news(job_id)
        return made

    def _serves(self, known: Listing, now: float, *, whole: bool) -> bool:
        young = now - known.whole_at < looks.list_lasts(self._pages())
        return known.age(now) < self._lasts(known) and (whole or young)

    def _lasts(self, known: Listing) -> float:
        by_name = known.at != known.whole_at
        return (looks.by_name_lasts if by_name else looks.list_lasts)(self._pages())

    def _pages(self) -> int:
        """Of all listings that are in use."""
        now = self._clock.now()
        used = [one for one in [*self._listings.values()] if one.age(now) < 2 * looks.LONGEST]
        return sum(one.pages for one in used)

    def _list(self, root: str, timeout: float) -> Listing:
        began = self._clock.now()
        blobs = self._blobs.list(root, timeout=timeout)
        passed = self._clock.now() - began
        made = Listing(began, self._blobs.clock(timeout=timeout) - passed, began, len(blobs))
        for blob in blobs:
            about = paths.read_report_path(root, blob.path)
            if about is not None:
                made.found.setdefault(about[:2], []).append(blob)
        return made

    def refresh(self) -> None:
        """Look again, by name, at what ticks have asked for lately, so that `news` tells of an end before the next
        tick. Nothing is listed, as a list costs more. What cannot be read here is left to the ticks, which say so."""
        for root, known in self._listings.copy().items():
            now, asked = self._clock.now(), self._asked.get(root, {}).copy().values()
            going = any(known.storage_now(now) < one.until for one in asked)
            old = known.age(now) >= self._lasts(known)
            if going and old and self._begun(root):
                with contextlib.suppress(TpujobError):
                    self._renewed(root, TIMEOUT, only_by_name=True)

    # By name ---------------------------------------------------------------------------------------------------------

    def _names(self, root: str, known: Listing) -> list[tuple[_Key, str]]:
        """The objects that are to be looked at by name; none: a list is better."""
        asked, now = self._asked.get(root, {}), self._clock.now()
        for key, one in asked.copy().items():
            if now - one.at > ASKED:
                asked.pop(key, None)
        all_asked = asked.copy().items()
        if any(one.hosts > 1 for _, one in all_asked) and now - known.whole_at >= looks.WHOLE:
            return []
        there = {blob.path for key, _ in all_asked for blob in known.found.get(key, ())}
        names = [(key, path) for key, one in all_asked for path in sorted(one.paths)]
        billed = sum(path in there for _, path in names)
        if not looks.by_name(billed, known.pages, of_all=self._pages(), prices=self._prices):
            return []
        return names

    def _looked(
        self, known: Listing, names: Sequence[tuple[_Key, str]], timeout: float
    ) -> Listing | None:
        """None: one of them cannot be looked at now. A list is one call; were it left at that, one call of many that
        fails would make what all jobs' hosts say unknown."""
        began = self._clock.now()
        fresh = {key: {blob.path: blob for blob in known.found.get(key, ())} for key, _ in names}
        for key, path in names:
            left = max(0.1, began + timeout - self._clock.now())
            try:
                fresh[key][path] = self._blobs.stat(path, timeout=left)
            except NotFound:
                fresh[key].pop(path, None)
            except Transient:
                return None
        storage_at = self._blobs.clock(timeout=timeout) - (self._clock.now() - began)
        found = {key: [blob for _, blob in sorted(blobs.items())] for key, blobs in fresh.items()}
        return replace(known, at=began, storage_at=storage_at, found=known.found | found)

    # What is over ----------------------------------------------------------------------------------------------------

    def tidy(self, live: Iterable[Job], key_of: KeyOf) -> None:
        """Remove the reports of attempts that are over, wherever these jobs report; one is kept in the folder of its
        attempt, see `Leaving`. What fails is left for the next time."""
        jobs = {paths.job_folder(job.workdir): job for job in live}
        for root in sorted({paths.reports_root(w) for job in jobs.values() for w in job.workdirs}):
            try:
                self._tidy(root, jobs, Leaving(self._blobs, key_of))
            except TpujobError as error:
                log.info("reports below %s are tidied later: %s", root, error)

    def _tidy(self, root: str, jobs: Mapping[str, Job], leaving: Leaving) -> None:
        known, now = self._listings.get(root), self._clock.now()
        if known is None or now - known.whole_at > SWEPT:
            if not self._begun(root):
                return
            known = self._renewed(root, TIMEOUT, whole=True)
        for key, blobs in known.found.copy().items():
            job = jobs.get(key[0])
            newest = job.attempt.number if job and job.attempt else 0
            if newest != key[1] and self._removed(root, key, known, blobs, leaving):
                known.found.pop(key, None)

    def _removed(
        self, root: str, key: _Key, known: Listing, blobs: Sequence[Blob], leaving: Leaving
    ) -> bool:
        """Whether none is there any more. They may be known as they were a while ago."""
        storage_now = known.storage_now(self._clock.now())
        there: list[Blob] = []
        for blob in blobs:
            with contextlib.suppress(NotFound):
                old = storage_now - blob.updated > STALE
                there.append(self._blobs.stat(blob.path, timeout=TIMEOUT) if old else blob)
        over = [blob for blob in there if storage_now - blob.updated > STALE]
        return leaving.leave(root, *key, over) and len(over) == len(there)
