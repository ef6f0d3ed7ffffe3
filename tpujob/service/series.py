"""Reads what host 0 of an attempt has reported of its steps: at its place while the attempt lasts, then where that is
kept. A read of a place where nothing lies costs nothing."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tpujob.domain.host import keys, reports
from tpujob.domain.host.series import READ, read_curves, unsigned_curves
from tpujob.domain.model import Attempt, Job
from tpujob.errors import NotFound, Refused, TpujobError, Transient
from tpujob.lib.lru import LruDict
from tpujob.ports import Blobs, Clock
from tpujob.protocol import limits, paths

#: seconds for which what was read of an attempt is taken as it is: while it runs, and once it has long ended
FRESH, SETTLED = 10.0, 600.0
KEPT = 256  #: attempts that are remembered, of 24 KiB each


class AttemptCurves(NamedTuple):
    """The newest that is known of an attempt."""

    line: bytes = b""  #: for `read_series`; empty: there is none
    doubted: bool = False  #: what lies there is not signed by its hosts
    number: int = -1  #: of the report
    until: float = 0.0  #: it is taken as it is
    error: TpujobError | None = None  #: why it could not be read; it is raised until then


class SeriesReader:
    """Safe for threads."""

    def __init__(self, blobs: Blobs, clock: Clock, key: Callable[[Sequence[str]], str]) -> None:
        """`key`: see `Hosts.key`."""
        self._blobs, self._clock, self._key = blobs, clock, key
        self._known: LruDict[tuple[str, int], AttemptCurves] = LruDict(KEPT)

    def of(self, job: Job, attempt: Attempt, left: float) -> AttemptCurves:
        """`left`: seconds to read it. Raises Transient, Refused."""
        key, now = (job.id, attempt.number), self._clock.now()
        known = self._known.get(key, AttemptCurves())
        if now < known.until:
            if known.error:
                raise known.error
            return known
        if left <= 0:
            raise Transient("reading takes too long")
        try:
            newest = self._read(job, attempt, known._replace(error=None, doubted=False), left)
        except (Transient, Refused) as error:
            self._known[key] = known._replace(until=now + FRESH, error=error)
            raise
        settled = attempt.ended_at is not None and now - attempt.ended_at > SETTLED
        newest = newest._replace(until=now + (SETTLED if settled else FRESH))
        self._known[key] = newest
        return newest

    def _read(
        self, job: Job, attempt: Attempt, newest: AttemptCurves, left: float
    ) -> AttemptCurves:
        own = reports.report_path(job, attempt, 0)
        if not attempt.signed:  # whatever lies there
            return AttemptCurves(unsigned_curves(self._body(own, READ, left)))
        key, end = self._key(keys.of_attempt(job, attempt)), time.monotonic() + left
        kept = paths.kept_report_path(job.workdir_of(attempt.number), attempt.number, 0)
        for path in (own, kept):
            body = self._body(path, limits.MAX_BODY, max(0.1, end - time.monotonic()))
            curves = read_curves(body, key) if body else None
            if body and curves is None:
                newest = newest._replace(doubted=True)
            if curves and curves.line and curves.number >= newest.number:
                newest = newest._replace(line=curves.line, number=curves.number)
            if curves and path == own:
                break
        return newest._replace(doubted=newest.doubted and not newest.line)

    def _body(self, path: str, most: int, left: float) -> bytes:
        """Empty: nothing lies there."""
        try:
            return self._blobs.get(path, end=most, timeout=left)
        except NotFound:
            return b""
