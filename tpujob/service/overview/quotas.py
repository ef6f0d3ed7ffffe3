"""What the project may hold of each kind of TPU: read with the backend's own rights, seldom and for all who look, and
shown beside what jobs hold. The function given to `Quotas` reads the quota."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tpujob.api import QuotasView, QuotaView
from tpujob.doctor.quota import (
    Allowance,
    QuotaKind,
    QuotaOverview,
    allowance_view,
    kind_of,
    per_chip,
)
from tpujob.domain.model import Cause, Job
from tpujob.domain.text import rfc3339
from tpujob.errors import TpujobError
from tpujob.ports import Clock
from tpujob.service.overview import capacity

log = logging.getLogger(__name__)

EVERY = 300.0  #: seconds between two readings
#: seconds that the caller who begins the first reading waits for it
PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Looked:
    found: QuotaOverview | None = None  #: None: it was never read
    at: float | None = None
    error: TpujobError | None = None  #: of the newest reading


class Quotas:
    """Thread-safe. At most one reading is under way; callers meanwhile get the result of the one before."""

    def __init__(
        self, read: Callable[[], QuotaOverview], clock: Clock, *, every: float = EVERY
    ) -> None:
        """`read` may raise TpujobError. `every`: least seconds between two readings; only `look` begins one."""
        self._read, self._clock, self._every = read, clock, every
        self._lock = threading.Lock()
        self._last = Looked()
        self._again_at = 0.0
        self._reading: threading.Thread | None = None

    def look(self) -> Looked:
        """Return the last reading, and begin another when it is older than `every` seconds. Never raises."""
        begun = self._begin()
        if begun and self._last.found is None:
            begun.join(PATIENCE)
        return self._last

    def _begin(self) -> threading.Thread | None:
        with self._lock:
            now = self._clock.now()
            if now < self._again_at or (self._reading and self._reading.is_alive()):
                return None
            self._again_at = now + self._every
            self._reading = threading.Thread(target=self._run, name="quota", daemon=True)
            self._reading.start()
            return self._reading

    def _run(self) -> None:
        try:
            self._last = Looked(self._read(), self._clock.now())
        except TpujobError as error:
            self._last = replace(self._last, error=error)
        except Exception:
            log.exception("quota cannot be read")
            error = TpujobError("the backend failed to read it; its log says more")
            self._last = replace(self._last, error=error)


def view(looked: Looked, jobs: Iterable[Job], now: float) -> QuotasView:
    """As `CapacityReport` has it; `jobs`: those that go on, and those that have ended within the day."""
    rows = looked.found.rows if looked.found else ()
    held, refused = _of_jobs(jobs, frozenset((row.kind, row.zone) for row in rows), now)
    return QuotasView(
        at=None if looked.at is None else rfc3339(looked.at),
        rows=[_row(row, held, refused) for row in rows],
        notes=[*looked.found.notes] if looked.found else [],
        unknown=looked.error.message if looked.error else "",
        hint="`tpujob quota` reads it with your own rights." if looked.error else "",
    )


_Where = tuple[QuotaKind, str]


def _of_jobs(
    jobs: Iterable[Job], rows: frozenset[_Where], now: float
) -> tuple[Counter[_Where], Counter[_Where]]:
    """The chips that jobs hold of each row, and how many of their requests it has refused."""
    held, refused = Counter[_Where](), Counter[_Where]()
    for one in (slice for job in jobs for slice in job.slices):
        row = kind_of(one.type, one.pricing), one.zone
        if row not in rows:  # there is one quota for slices of every size
            row = replace(row[0], part=""), one.zone
        if one.gone_at is None and one.ready_at is not None:
            held[row] += capacity.chips([one])
        if one.refused is Cause.QUOTA and capacity.within(one.gone_at or one.requested_at, now):
            refused[row] += 1
    return held, refused


def _row(row: Allowance, held: Counter[_Where], refused: Counter[_Where]) -> QuotaView:
    where = row.kind, row.zone
    return QuotaView(
        **allowance_view(row),
        held=held[where] * per_chip(row.kind, row.unit),
        refused=refused[where],
    )
