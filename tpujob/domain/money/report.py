"""Reports: chip-time and money of many jobs by job, user, share, day, type or zone, or by two of these, divided into
parts of time. Pure.

Every span of time lands in one row and one part. So rows add up to the total, and parts to their row, to the
micro-dollar and the microsecond. Rows of days end at midnight, UTC.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice
from tpujob.domain.money import goodput, ledger
from tpujob.domain.money.goodput import Span, TimePart
from tpujob.domain.money.ledger import US, BilledSlice, moment
from tpujob.domain.money.period import Period

Group = Literal["job", "user", "share", "day", "type", "zone"]
GROUPS: tuple[Group, ...] = get_args(Group)

DAY = 86_400 * US


@dataclass(slots=True)
class CostShare:
    """The chip-time and the money of one part."""

    #: chips times microseconds; time without a slice counts the chips that the job requests
    chip_time: int = 0
    micros: int = 0  #: micro-dollars by list price, as far as prices are known


class Grouping(NamedTuple):
    """What the rows of a report are."""

    by: Group
    then: Group | None = None  #: each row is divided by this
    days: bool = False  #: and by day, so that a period can be taken of the report


#: of a row within its report
Place = tuple[str, str, str]


@dataclass(slots=True)
class Row:
    """The sums over all time with one key."""

    key: str
    name: str = ""  #: the job's name, in rows of jobs
    then: str = ""  #: the key of `Grouping.then`
    day: str = ""  #: of rows that are divided by day
    jobs: set[str] = field(default_factory=set[str])
    slices: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    open: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  #: slices still billed
    parts: dict[TimePart, CostShare] = field(default_factory=dict[TimePart, CostShare])
    billed: int = 0  #: chip-microseconds from ready to gone
    unpriced: int = 0  #: the part of `billed` without a known price
    list: int = 0  #: micro-dollars by list price, as far as prices are known
    unsure: int = (
        0  #: the part of `list` for slices that are missing, or were lost while no poll saw them
    )
    granted: int = 0  #: micro-dollars of slices that a grant pays for

    @property
    def place(self) -> Place:
        return self.key, self.then, self.day

    @property
    def pay(self) -> int:
        """The micro-dollars that no grant pays."""
        return self.list - self.granted

    @property
    def chip_time(self) -> int:
        return sum(share.chip_time for share in self.parts.values())

    @property
    def waited(self) -> int:
        """The chip-microseconds of waiting for the cloud, which are not billed."""
        return self.chip_time - self.billed

    @property
    def goodput(self) -> float | None:
        """The productive share of the billed chip-time, from 0 to 1; None: nothing was billed."""
        good = self.parts.get(TimePart.PRODUCTIVE, CostShare()).chip_time
        return good / self.billed if self.billed else None


@dataclass(frozen=True, slots=True)
class CostReport:
    by: Grouping
    rows: tuple[
        Row, ...
    ]  #: the dearest first; days in order; with `then`, all rows of a key together
    total: Row


def report(
    jobs: Sequence[Job],
    now: float,
    by: Group | Grouping,
    covered: Collection[ledger.Key] = (),
) -> CostReport:
    """Return the report of these jobs up to `now`. `covered`: the slices that a grant pays for (`ledger.covered`)."""
    by = Grouping(by) if isinstance(by, str) else by
    rows: dict[Place, Row] = {}
    for job in jobs:
        spans = [
            span
            for span in goodput.spans(job, now)
            if span.part is not TimePart.WAITING or goodput.waits_for_cloud(job, span)
        ]
        if by.days or "day" in by:
            spans = [piece for span in spans for piece in _by_day(span)]
        requested = accelerators.find(job.spec.tpu.types[0]).chips * job.tpu_slices
        without_slice = _Rate(requested)
        rates = {slice.name: _rate(job, slice, covered) for slice in job.slices}
        for span in spans:
            key, then = _key(job, span, by.by), _key(job, span, by.then) if by.then else ""
            day = _key(job, span, "day") if by.days else ""
            place = (key, then, day)
            row = rows.get(place) or rows.setdefault(place, Row(key, then=then, day=day))
            row.jobs.add(job.id)
            _add(row, span, rates[span.slice.name] if span.slice else without_slice)
            if by.by == "job":
                row.name = job.name
    return _report(by, rows.values())


def merged(by: Grouping, rows: Mapping[Place, Row], others: Iterable[Row]) -> CostReport:
    """Return the report of `rows`, by their places, and of `others`, which are about other jobs. Change neither."""
    merged = dict(rows)
    for row in others:
        merged[row.place] = _sum(row, (rows[row.place], row)) if row.place in rows else row
    return _report(by, merged.values())


def of_period(report: CostReport, period: Period) -> CostReport:
    """Return the part of a report with `Grouping.days` that is of these days, not divided by day any more."""
    of_place: dict[Place, list[Row]] = {}
    for row in report.rows:
        if period.has(row.day):
            of_place.setdefault((row.key, row.then, ""), []).append(row)
    rows = [_sum(Row(key, of[0].name, then), of) for (key, then, _), of in of_place.items()]
    return _report(report.by._replace(days=False), rows)


def _report(by: Grouping, rows: Iterable[Row]) -> CostReport:
    rows = sorted(rows, key=lambda r: (-r.list, -r.chip_time, r.key, r.then, r.day))
    if by.by == "day":
        rows.sort(key=lambda r: r.key)
    if by.then or by.days:
        dearest = dict.fromkeys(row.key for row in rows)
        if by.by != "day":
            totals: dict[str, int] = defaultdict(int)
            for row in rows:
                totals[row.key] += row.list
            dearest = dict.fromkeys(sorted(dearest, key=lambda key: -totals[key]))
        order = {key: n for n, key in enumerate(dearest)}
        by_day = by.then == "day"
        rows.sort(key=lambda r: (order[r.key], r.then if by_day else "", r.day))
    return CostReport(by, tuple(rows), _sum(Row("total"), rows))


class _Rate(NamedTuple):
    """The weight of a slice's time in a report: chips and price."""

    chips: int
    key: ledger.Key = ("", "")
    row: tuple[BilledSlice, ...] = ()  #: empty: it is not billed
    granted: bool = False
    open: bool = False
    missing: int | None = None  #: microseconds: since when the slice may be gone, or may have been


def _rate(job: Job, slice: Slice, covered: Collection[ledger.Key]) -> _Rate:
    key = (job.id, slice.name)
    living = slice.gone_at is None
    missing = slice.missing_since if living else None
    lost_at = missing if slice.certain_until is None else slice.certain_until
    return _Rate(
        chips=accelerators.chips_of(slice),
        key=key,
        row=tuple(ledger.rows([slice])),
        granted=key in covered,
        open=living,
        missing=None if lost_at is None else moment(lost_at),
    )


def _add(row: Row, span: Span, rate: _Rate) -> None:
    chip_time = rate.chips * (span.end - span.start)
    share = row.parts.get(span.part) or row.parts.setdefault(span.part, CostShare())
    share.chip_time += chip_time
    if not span.billed:
        return
    row.slices.add(rate.key)
    row.billed += chip_time
    if rate.open:
        row.open.add(rate.key)
    cost = ledger.cost(rate.row, span.end, span.start)
    if cost is None:
        row.unpriced += chip_time
        return
    share.micros += cost
    row.list += cost
    if rate.granted:
        row.granted += cost
    if rate.missing is not None:
        row.unsure += ledger.cost(rate.row, span.end, max(span.start, rate.missing)) or 0


def _sum(like: Row, rows: Iterable[Row]) -> Row:
    """Return the sum of the rows in the place of `like`."""
    total = Row(like.key, like.name, like.then, like.day)
    for row in rows:
        total.jobs |= row.jobs
        total.slices |= row.slices
        total.open |= row.open
        total.billed += row.billed
        total.unpriced += row.unpriced
        total.list += row.list
        total.unsure += row.unsure
        total.granted += row.granted
        for part, share in row.parts.items():
            whole = total.parts.setdefault(part, CostShare())
            whole.chip_time += share.chip_time
            whole.micros += share.micros
    return total


def _key(job: Job, span: Span, by: Group) -> str:
    slice = span.slice
    match by:
        case "job":
            return job.id
        case "user":
            return job.user
        case "share":
            return job.spec.share
        case "day":
            return datetime.fromtimestamp(span.start / US, UTC).date().isoformat()
        case "type":
            return slice.type if slice else job.spec.tpu.types[0]
        case "zone":
            return slice.zone if slice else next(iter(job.spec.tpu.zones), "")


def _by_day(span: Span) -> Iterator[Span]:
    """Yield the parts of the span that midnights divide."""
    start = span.start
    while start < span.end:
        end = min(span.end, (start // DAY + 1) * DAY)
        yield Span(span.part, start, end, span.slice)
        start = end
