"""The hardware of the lab: how each offer fares, from the records of jobs, and the quota of the project.

Quota is read with the backend's own rights, seldom, and for all callers together.
"""

import logging
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.api import AllowanceView, OfferView, OpenCircuit, QuotasView, QuotaView
from tpujob.doctor.quota import QuotaOverview, kind_of, per_chip
from tpujob.doctor.quota import chips as allowed
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Cause, Job, Slice
from tpujob.domain.observations import Circuit, Reason
from tpujob.domain.text import rfc3339
from tpujob.errors import TpujobError
from tpujob.ports import Clock, QuotaKind

DAY = 86_400.0


@dataclass(slots=True)
class _Offer:
    held: list[Slice] = field(default_factory=list[Slice])
    asked: list[Slice] = field(default_factory=list[Slice])
    waits: list[float] = field(default_factory=list[float])
    refused: int = 0
    preempted: int = 0


def offers(jobs: Iterable[Job], now: float) -> list[OfferView]:
    """Return every offer of which slices are held or requested, or were requested within the day; by zone and type. A
    Multislice counts as one slice with the chips of all."""
    by_offer: defaultdict[tuple[str, str, str], _Offer] = defaultdict(_Offer)
    for job in jobs:
        ended = {
            a.slice for a in job.attempts if a.cause is Cause.PREEMPTED and within(a.ended_at, now)
        }
        for slice in job.slices:
            _count(by_offer, slice, now, preempted=slice.name in ended)
    return [_view(*key, offer) for key, offer in sorted(by_offer.items())]


def _count(
    by_offer: defaultdict[tuple[str, str, str], _Offer],
    slice: Slice,
    now: float,
    *,
    preempted: bool,
) -> None:
    key = (slice.zone, slice.type, slice.pricing)
    if slice.gone_at is None:
        (by_offer[key].asked if slice.ready_at is None else by_offer[key].held).append(slice)
    if slice.ready_at is not None and within(slice.ready_at, now):
        by_offer[key].waits.append(max(0.0, slice.ready_at - slice.requested_at))
    if slice.refused is not None and within(slice.gone_at or slice.requested_at, now):
        by_offer[key].refused += 1
    if preempted:
        by_offer[key].preempted += 1


def within(at: float | None, now: float) -> bool:
    """Return whether `at` is within the last day."""
    return at is not None and now - at <= DAY


def _view(zone: str, type: str, pricing: str, offer: _Offer) -> OfferView:
    prices = [s.usd_per_hour for s in offer.held]
    since = min((s.requested_at for s in offer.asked), default=None)
    return OfferView(
        type=type,
        zone=zone,
        pricing=pricing,
        held=len(offer.held),
        held_chips=chips(offer.held),
        usd_per_hour=None if None in prices else round(sum(filter(None, prices)), 4),
        asked=len(offer.asked),
        asked_chips=chips(offer.asked),
        asked_since=None if since is None else rfc3339(since),
        ready=len(offer.waits),
        wait_p50_s=quantile(offer.waits, 0.5),
        wait_p90_s=quantile(offer.waits, 0.9),
        refused=offer.refused,
        preempted=offer.preempted,
    )


def chips(slices: Iterable[Slice]) -> int:
    return sum(accelerators.find(s.type, s.provider).chips * s.tpu_slices for s in slices)


def quantile(values: Sequence[float], part: float) -> float | None:
    """Return the smallest value that at least that part of the values does not exceed; None: there are no values."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else None


def open_circuits(circuits: Mapping[str, Circuit], now: float) -> list[OpenCircuit]:
    """Return the circuits by their time of retry, the latest first."""
    views: list[OpenCircuit] = []
    for _, circuit in sorted(circuits.items(), key=lambda item: (-item[1].until, item[0])):
        place, hardware, pricing = circuit.pool.split("/")
        by_chips = circuit.cause is Cause.QUOTA and circuit.chips > 0
        views.append(
            OpenCircuit(
                cause=circuit.cause,
                place=place,
                what=f"{hardware} ({circuit.chips} chips or more)" if by_chips else hardware,
                pricing=pricing,
                refusals=circuit.refusals,
                since=rfc3339(circuit.since),
                again_at=rfc3339(circuit.until),
                open=circuit.until > now,
            )
        )
    return views


# Quota ---------------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

EVERY = 300.0  #: seconds between two readings
FIRST_READING = 3.0  #: seconds


@dataclass(frozen=True, slots=True)
class Looked:
    found: QuotaOverview | None = None  #: None: it was never read
    at: float | None = None
    error: TpujobError | None = None  #: of the newest reading


class Quotas:
    """Thread-safe. At most one read is under way; other callers meanwhile get the previous result."""

    def __init__(
        self,
        read: Callable[[], QuotaOverview],
        clock: Clock,
        *,
        every: float = EVERY,
        first: float = FIRST_READING,
    ) -> None:
        """`read` may raise TpujobError. `every`: least seconds between two readings; only `look` begins one. `first`:
        seconds that the caller who begins the first reading waits for it."""
        self._read, self._clock, self._every, self._first = read, clock, every, first
        self._lock = threading.Lock()
        self._last = Looked()
        self._again_at = 0.0
        self._reading: threading.Thread | None = None

    def look(self, *, wait: bool = False) -> Looked:
        """Return the last reading, and begin another when it is older than `every` seconds. Never raises. `wait`: some
        seconds for one that begins, even if there is an older one."""
        begun, now = None, self._clock.now()
        with self._lock:
            if now >= self._again_at and not (self._reading and self._reading.is_alive()):
                self._again_at = now + self._every
                begun = threading.Thread(target=self._run, name="quota", daemon=True)
                begun.start()
                self._reading = begun
        if begun and (wait or self._last.found is None):
            begun.join(self._first)
        return self._last

    def _run(self) -> None:
        try:
            self._last = Looked(self._read(), self._clock.now())
        except TpujobError as error:
            self._last = replace(self._last, error=error)
        except Exception:
            log.exception("quota cannot be read")
            error = TpujobError("the backend failed to read it; its log says more")
            self._last = replace(self._last, error=error)


def quotas_view(looked: Looked, jobs: Iterable[Job], now: float) -> QuotasView:
    """Return the quotas of a `CapacityReport`. `jobs`: those active, or ended within the day."""
    rows = looked.found.rows if looked.found else ()
    held, refused = _of_jobs(jobs, frozenset(map(_place, rows)), now)
    return QuotasView(
        at=None if looked.at is None else rfc3339(looked.at),
        rows=[_row(row, held, refused) for row in rows],
        notes=[*looked.found.notes] if looked.found else [],
        unknown=looked.error.message if looked.error else "",
        hint="`tpujob quota` reads it with your own rights." if looked.error else "",
    )


def allows(quotas: Quotas, offer: Offer, reason: Reason) -> bool:
    """Return whether a reading that is newer than the limit in `reason` allows the chips of the offer."""
    looked = quotas.look(wait=True)
    if looked.found is None or (looked.at or 0.0) <= (reason.since or 0.0):
        return False
    kind = kind_of(offer.type, offer.pricing, offer.provider)
    by_place = {_place(row): row for row in looked.found.rows if row["known"]}
    row = by_place.get((kind, offer.zone)) or by_place.get((replace(kind, part=""), offer.zone))
    limit = allowed(row) if row else 0
    return (row is None and looked.found.complete) or limit is None or limit >= reason.count


_Where = tuple[QuotaKind, str]


def _of_jobs(
    jobs: Iterable[Job], rows: frozenset[_Where], now: float
) -> tuple[Counter[_Where], Counter[_Where]]:
    """Return the chips that jobs hold of each row, and how many requests of jobs it has refused."""
    held, refused = Counter[_Where](), Counter[_Where]()
    for slice in (slice for job in jobs for slice in job.slices):
        row = kind_of(slice.type, slice.pricing, slice.provider), slice.zone
        if row not in rows:  # there is slice quota for slices of every size
            row = replace(row[0], part=""), slice.zone
        if slice.gone_at is None and slice.ready_at is not None:
            held[row] += chips([slice])
        if slice.refused is Cause.QUOTA and within(slice.gone_at or slice.requested_at, now):
            refused[row] += 1
    return held, refused


def _row(row: AllowanceView, held: Counter[_Where], refused: Counter[_Where]) -> QuotaView:
    where = _place(row)
    used = held[where] * per_chip(row["type"], row["unit"])
    return QuotaView(**row, held=used, refused=refused[where])


def _place(row: AllowanceView) -> _Where:
    return QuotaKind(row["type"], row["pricing"], row["part"], row["provider"]), row["zone"]
