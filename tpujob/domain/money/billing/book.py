"""Sorts the rows of a bill to our slices, and sets the sums beside the ledger. Pure; memory grows with jobs and days,
not with rows.

A row is ours by its labels first, as we put them on every slice; then by the name of its resource, which the detailed
export has for some TPU generations; then by generation, pricing, zone and hour: what our slices can have used in that
hour is theirs, and the rest is others'. A job that the labels or names of the export tell takes no part in the last.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.money.billing.charges import MICRO, Charge
from tpujob.domain.money.billing.headings import Heading, TpuSku, by_kind, by_service, tpu_sku
from tpujob.domain.money.billing.reconciled import (
    JobLine,
    Match,
    OtherLine,
    Period,
    Reconciled,
)
from tpujob.domain.money.billing.slices import LedgerSlice
from tpujob.domain.money.billing.tally import Tally
from tpujob.protocol import JOB_LABEL, OWNER_LABEL

HOUR = 3600 * MICRO
DAY = 24 * HOUR
#: usually rows come within a day, sometimes later; nothing is promised (documented)
SETTLED_AFTER = 48 * HOUR

_HOURS = ("hour", "hours", "h")


class _Ours(NamedTuple):
    job: str


class _Window(NamedTuple):
    """TPU time of nobody in particular."""

    generation: str
    spot: bool
    place: str  #: a zone; a region where the row says no more
    start: int
    end: int


class _Elsewhere(NamedTuple):
    heading: Heading
    name: str


_Place = _Ours | _Window | _Elsewhere


class _When(NamedTuple):
    at: int  #: the start of the day; of a late row, of its use
    late: bool  #: on the invoice of a later month


class Book:
    """Takes rows in any order. `jobs`: the names of all jobs, by id; `owner`: the value of our backend's label."""

    def __init__(self, jobs: Mapping[str, str], slices: Iterable[LedgerSlice], owner: str) -> None:
        self._slices = tuple(slices)
        self._owner = owner
        self._jobs = jobs
        self._names = {one.name: one.job for one in self._slices}
        self._tallies: defaultdict[tuple[_Place, _When], Tally] = defaultdict(Tally)
        self._matched: defaultdict[str, set[Match]] = defaultdict(set)
        self._told: set[tuple[str, TpuSku]] = set()  #: jobs whose rows say whose they are
        self._first: int | None = None
        self._newest = 0

    def add(self, row: Charge) -> None:
        self._newest = max(self._newest, row.exported)
        late = row.invoice_month > _month(row.start // HOUR)
        if not late and (self._first is None or row.start < self._first):
            self._first = row.start
        place, usage = self._place(row)
        when = _When(row.start if late else row.start // DAY * DAY, late)
        self._tallies[place, when].add(row, usage)

    def _place(self, row: Charge) -> tuple[_Place, int | None]:
        """Where it belongs, and its TPU time in millionths of a chip-hour."""
        kind = by_kind(row)
        if kind is not None:
            return _Elsewhere(kind, ""), 0
        sku = tpu_sku(row.sku)
        usage = _chip_time(row, sku) if sku else 0
        owner = row.labels.get(OWNER_LABEL)
        if owner is not None and JOB_LABEL in row.labels:
            return self._by_label(row.labels[JOB_LABEL], owner, sku), usage
        if sku is None:
            return _Elsewhere(*by_service(row)), 0
        job = self._names.get(row.resource) or self._names.get(_MULTISLICE.sub("", row.resource))
        if job:
            return self._ours(job, sku, "name"), usage
        if _OUR_WAY.match(row.resource):
            return _Elsewhere(Heading.OTHER_BACKENDS, ""), usage
        place = row.zone or row.region
        return _Window(sku.generation, sku.spot, place, row.start, row.end), usage

    def _by_label(self, job: str, owner: str, sku: TpuSku | None) -> _Place:
        if owner != self._owner:
            return _Elsewhere(Heading.OTHER_BACKENDS, "")
        if sku is None:
            return _Elsewhere(Heading.BESIDE_SLICES, "")
        if job not in self._jobs:
            return _Elsewhere(Heading.REMOVED_JOBS, "")
        return self._ours(job, sku, "label")

    def _ours(self, job: str, sku: TpuSku, how: Match) -> _Ours:
        self._matched[job].add(how)
        self._told.add((job, sku))
        return _Ours(job)

    # The end ---------------------------------------------------------------------------------------------------------

    def close(self, now: int, *, since: int | None = None, until: int | None = None) -> Reconciled:
        """Bill and ledger from `since` to `until`, which are midnights, UTC. Left out: from the first row that is on
        the invoice of its own month, until what may still be missing from the export. At least one row was added."""
        settled = (self._newest - SETTLED_AFTER) // DAY * DAY
        end = settled if until is None else until
        start = min(end, self._newest if self._first is None else self._first)
        period = Period(start if since is None else since, min(end, now))
        before, unsettled, billed = Tally(), Tally(), Tally()
        found: defaultdict[_Place, Tally] = defaultdict(Tally)
        for (place, when), tally in self._tallies.items():
            billed.merge(tally)
            if when.at < (period.start if when.late else period.start // DAY * DAY):
                before.merge(tally)
            elif when.at >= end:
                unsettled.merge(tally)
            else:
                found[place].merge(tally)
        self._give_out(found)
        lines = [line for line in self._lines(found, period) if line.chip_time or line.billed.rows]
        return Reconciled(
            period,
            self._newest,
            tuple(sorted(lines, key=lambda line: (-abs(line.gap), line.job))),
            _others(found),
            before,
            unsettled,
            unsettled_estimate=self._estimate(period.end, now),
            earlier_estimate=self._estimate(0, period.start),
            billed=billed,
        )

    def _give_out(self, found: defaultdict[_Place, Tally]) -> None:
        """Give what nobody in particular used to our slices that can have used it; the rest is others'."""
        index = self._index()
        for window in [place for place in found if isinstance(place, _Window)]:
            tally = found.pop(window)
            here = index.get((window.generation, window.spot, window.place), ())
            shares = [(one.job, one.time(window.start, window.end)) for one in here]
            shares = [(job, time) for job, time in shares if time]
            rest = max(0, tally.usage * 3600 - sum(time for _, time in shares))
            if not shares:
                rest = 1
            elif tally.unmeasured:
                rest = 0
            parts = tally.split([*(time for _, time in shares), rest])
            for (job, _), part in zip(shares, parts, strict=False):
                self._matched[job].add("hour")
                found[_Ours(job)].merge(part)
            if rest:
                found[_Elsewhere(Heading.OTHER_TPU, "")].merge(parts[-1])

    def _index(self) -> dict[tuple[str, bool, str], list[LedgerSlice]]:
        """Slices by what rows say of TPU time that is nobody's in particular."""
        told = {(job, sku.generation, sku.spot) for job, sku in self._told}
        index: defaultdict[tuple[str, bool, str], list[LedgerSlice]] = defaultdict(list)
        for one in self._slices:
            if (one.job, one.generation, one.spot) not in told:
                for place in (one.zone, region_of(one.zone)):
                    index[one.generation, one.spot, place].append(one)
        return index

    def _lines(self, found: defaultdict[_Place, Tally], period: Period) -> Iterator[JobLine]:
        by_job: defaultdict[str, list[LedgerSlice]] = defaultdict(list)
        for one in self._slices:
            by_job[one.job].append(one)
        for job, name in self._jobs.items():
            times = [(one, one.time(period.start, period.end)) for one in by_job[job]]
            costs = [(one, one.cost(period.start, period.end)) for one in by_job[job]]
            yield JobLine(
                job,
                name,
                frozenset(self._matched[job]),
                chip_time=sum(time for _, time in times),
                unpriced=sum(time for one, time in times if one.rate is None),
                list=sum(cost for _, cost in costs),
                estimate=sum(cost for one, cost in costs if not one.granted),
                billed=found.get(_Ours(job)) or Tally(),
            )

    def _estimate(self, start: int, end: int) -> int:
        return sum(one.cost(start, end) for one in self._slices if not one.granted)


def _others(found: defaultdict[_Place, Tally]) -> tuple[OtherLine, ...]:
    order: Sequence[Heading] = tuple(Heading)
    lines = [
        OtherLine(place.heading, place.name, tally)
        for place, tally in found.items()
        if isinstance(place, _Elsewhere)
    ]
    return tuple(sorted(lines, key=lambda o: (order.index(o.heading), -o.billed.net, o.name)))


def _chip_time(row: Charge, sku: TpuSku) -> int | None:
    if row.usage is None or row.unit not in _HOURS:
        return None
    return row.usage * sku.chips


_OUR_WAY = re.compile(r"tj-[0-9]+-[0-9]+")
_MULTISLICE = re.compile(r"-[0-9]{1,4}$")  #: a node's place among the nodes of one slice


@lru_cache(65_536)
def _month(hour: int) -> str:
    """The month on whose invoice use of that hour since the epoch is: Google's months are those of the Pacific."""
    return datetime.fromtimestamp((hour - 7) * 3600, UTC).strftime("%Y%m")
