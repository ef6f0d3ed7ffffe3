"""Finds what the hosts of an attempt have told of its steps, wherever the newest of it lies in the bucket.

Host 0 writes for its slice as long as it can, so that one read is enough. When its object is not there, not signed or
too old, another host speaks: the places of all are tried in their order once a minute, and from then on that host's is
read first. A look at a place where nothing lies costs nothing. No other process needs to know where the newest lies.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tpujob.domain.host import keys, reports
from tpujob.domain.host.series import READ, Signed, read_signed
from tpujob.domain.model import Attempt, Job
from tpujob.errors import NotFound, Refused, TpujobError, Transient
from tpujob.lib.lru import LruDict
from tpujob.ports import Blobs, Clock
from tpujob.protocol import limits, paths
from tpujob.protocol.slice_report import series_of

#: seconds for which what was read of an attempt is taken as it is: while it runs, and once it has long ended
FRESH, SETTLED = 10.0, 600.0
#: seconds after which a host that goes on should have written anew: it does once a minute
LATE = 90.0
#: seconds between two looks at the places of all hosts
SEARCHED = 60.0
KEPT = 256  #: attempts that are remembered, of 24 KiB each


class Told(NamedTuple):
    """The newest that is known of an attempt."""

    line: bytes = b""  #: for `read_series`; empty: there is none
    doubted: bool = False  #: what lies there is not signed by its hosts
    number: int = -1  #: see `Signed`
    path: str = ""  #: where it was
    until: float = 0.0  #: it is taken as it is
    error: TpujobError | None = None  #: why it could not be read; it is raised until then
    searched: float = -math.inf  #: when the places of all hosts were looked at last


class SeriesReader:
    """Safe for threads."""

    def __init__(self, blobs: Blobs, clock: Clock, key: Callable[[Sequence[str]], str]) -> None:
        """`key`: see `Hosts.key`."""
        self._blobs, self._clock, self._key = blobs, clock, key
        self._told: LruDict[tuple[str, int], Told] = LruDict(KEPT)

    def of(self, job: Job, attempt: Attempt, left: float) -> Told:
        """`left`: seconds to read it. Raises Transient, Refused."""
        key, now = (job.id, attempt.number), self._clock.now()
        known = self._told.get(key, Told())
        if now < known.until:
            if known.error:
                raise known.error
            return known
        if left <= 0:
            raise Transient("reading takes too long")
        read = self._signed if attempt.signed else self._unsigned
        try:
            found = read(job, attempt, known._replace(error=None), left)
        except (Transient, Refused) as error:
            self._told[key] = known._replace(until=now + FRESH, error=error)
            raise
        settled = attempt.ended_at is not None and now - attempt.ended_at > SETTLED
        found = found._replace(until=now + (SETTLED if settled else FRESH))
        self._told[key] = found
        return found

    def _unsigned(self, job: Job, attempt: Attempt, _: Told, left: float) -> Told:
        """Of an agent that does not sign: whatever lies where host 0 reports."""
        with contextlib.suppress(NotFound):
            path = reports.report_path(job, attempt, 0)
            return Told(series_of(self._blobs.get(path, end=READ, timeout=left)))
        return Told()

    def _signed(self, job: Job, attempt: Attempt, known: Told, left: float) -> Told:
        key, end = self._key(keys.of_attempt(job, attempt)), time.monotonic() + left
        kept = paths.kept_report_path(job.workdir_of(attempt.number), attempt.number, 0)
        newest, doubted = known, False
        for path in self._first(job, attempt, known, kept):
            found, forged = self._read(path, key, end)
            newest, doubted = _newer(newest, found, path), doubted or forged
            final = path == kept and attempt.ended_at is not None
            if found is not None and (final or self._enough(attempt, found, end)):
                break
        else:
            if self._search_due(job, attempt, known):
                newest, forged = self._search(
                    job, attempt, newest, key, time.monotonic() + left / 2
                )
                doubted |= forged
        return newest._replace(doubted=doubted and not newest.line)

    def _first(self, job: Job, attempt: Attempt, known: Told, kept: str) -> Iterator[str]:
        """Where it was found last; while the attempt lasts; and once it is over."""
        yield from dict.fromkeys(
            path for path in (known.path, reports.report_path(job, attempt, 0), kept) if path
        )

    def _search_due(self, job: Job, attempt: Attempt, known: Told) -> bool:
        over = attempt.ended_at is not None and known.searched > attempt.ended_at
        return job.hosts > 1 and not over and self._clock.now() - known.searched >= SEARCHED

    def _search(
        self, job: Job, attempt: Attempt, newest: Told, key: str, end: float
    ) -> tuple[Told, bool]:
        """The newest at the places of the hosts after host 0, as far as the time allows; see `_read`."""
        doubted = False
        for host in range(1, job.hosts):
            if time.monotonic() >= end:
                break
            path = reports.report_path(job, attempt, host)
            found, forged = self._read(path, key, end)
            newest, doubted = _newer(newest, found, path), doubted or forged
            if found is not None and self._enough(attempt, found, end):
                break
        return newest._replace(searched=self._clock.now()), doubted

    def _read(self, path: str, key: str, end: float) -> tuple[Signed | None, bool]:
        """What is signed there, and whether there is something that is not."""
        try:
            left = max(0.1, end - time.monotonic())
            body = self._blobs.get(path, end=limits.MAX_BODY, timeout=left)
        except NotFound:
            return None, False
        found = read_signed(body, key)
        return found, found is None and body != b""

    def _enough(self, attempt: Attempt, found: Signed, end: float) -> bool:
        """Whether no other host can have more to say: this one speaks still, or has said its last word."""
        if found.last:
            return True
        left = max(0.1, end - time.monotonic())
        now = min(self._blobs.clock(timeout=left), attempt.ended_at or math.inf)
        return found.at is not None and found.at >= now - LATE


def _newer(known: Told, found: Signed | None, path: str) -> Told:
    """An object that was put back is older than what is known, and changes nothing."""
    if found is None or not found.line or found.number < known.number:
        return known
    return known._replace(line=found.line, number=found.number, path=path)
