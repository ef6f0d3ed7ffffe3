"""Chip-time and money of many jobs, by job, user, day, type or zone, divided by where the time went. Pure.

Every stretch of time lands in one row and one part, so rows add up to the total and parts to their row, to the
micro-dollar and the microsecond. Rows of days end at midnight, UTC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Literal, get_args

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job
from tpujob.domain.money import goodput, grants, ledger
from tpujob.domain.money.goodput import Part, Span
from tpujob.domain.money.ledger import US, accrued, moment

Group = Literal["job", "user", "day", "type", "zone"]
GROUPS: tuple[Group, ...] = get_args(Group)

DAY = 86_400 * US


@dataclass(slots=True)
class Share:
    """What one part took."""

    chip_time: int = (
        0  #: chips times microseconds; of time without a slice, the chips that the job asks for
    )
    micros: int = 0  #: micro-dollars by list price, as far as prices are known


@dataclass(slots=True)
class Row:
    """The sum over all time with one key."""

    key: str
    name: str = ""  #: of the job, for rows of jobs
    jobs: set[str] = field(default_factory=set[str])
    slices: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    open: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  #: slices still billed
    parts: dict[Part, Share] = field(default_factory=dict[Part, Share])
    billed: int = 0  #: chip-microseconds from ready to gone
    unpriced: int = 0  #: of those, with no known price
    list: int = 0  #: micro-dollars by list price, as far as prices are known
    unsure: int = 0  #: of those, for slices that are missing and not yet confirmed to be gone
    granted: int = 0  #: micro-dollars of slices that a grant pays for

    @property
    def pay(self) -> int:
        """Micro-dollars that are not granted."""
        return self.list - self.granted

    @property
    def chip_time(self) -> int:
        return sum(share.chip_time for share in self.parts.values())

    @property
    def goodput(self) -> float | None:
        """The productive part of all chip-time, waiting included, from 0 to 1; None: there was no time."""
        whole = self.chip_time
        good = self.parts.get(Part.PRODUCTIVE, Share()).chip_time
        return good / whole if whole else None


@dataclass(frozen=True, slots=True)
class Report:
    by: Group
    rows: tuple[Row, ...]  #: the dearest first; days in order
    total: Row


def report(
    jobs: Sequence[Job], now: float, by: Group, covered: Collection[grants.Key] = ()
) -> Report:
    """What these jobs took up to `now`. `covered`: the slices that a grant pays for, as `grants.covered` finds them."""
    rows: dict[str, Row] = {}
    total = Row("total")
    for job in jobs:
        for span in goodput.spans(job, now):
            for piece in _by_day(span) if by == "day" else (span,):
                key = _key(job, piece, by)
                row = rows.get(key) or rows.setdefault(key, Row(key))
                if by == "job":
                    row.name = job.name
                for each in (row, total):
                    _add(each, job, piece, now, covered)
    by_price = sorted(rows.values(), key=lambda r: (-r.list, -r.chip_time, r.key))
    ordered = sorted(by_price, key=lambda r: r.key) if by == "day" else by_price
    return Report(by, tuple(ordered), total)


def _add(row: Row, job: Job, span: Span, now: float, covered: Collection[grants.Key]) -> None:
    one = span.slice
    chips = _chips(job.spec.tpu.types[0], job.tpu_slices) if one is None else _chips(
        one.type, one.tpu_slices)  # fmt: skip
    time = chips * (span.end - span.start)
    share = row.parts.get(span.part) or row.parts.setdefault(span.part, Share())
    share.chip_time += time
    row.jobs.add(job.id)
    if one is None or not span.billed:
        return
    name = (job.id, one.name)
    row.slices.add(name)
    row.billed += time
    if one.gone_at is None and span.end >= moment(now):
        row.open.add(name)
    rate = ledger.rate(one)
    if rate is None:
        row.unpriced += time
        return
    micros = _cost(rate, span)
    share.micros += micros
    row.list += micros
    if name in covered:
        row.granted += micros
    elif one.gone_at is None and one.missing_since is not None:
        since = max(span.start, min(span.end, moment(one.missing_since)))
        row.unsure += _cost(rate, Span(span.part, since, span.end, one))


def _cost(rate: int, span: Span) -> int:
    """Micro-dollars of one stretch of a slice's life."""
    assert span.slice is not None
    assert span.slice.ready_at is not None
    ready = moment(span.slice.ready_at)
    return accrued(rate, span.end - ready) - accrued(rate, span.start - ready)


def _key(job: Job, span: Span, by: Group) -> str:
    one = span.slice
    match by:
        case "job":
            return job.id
        case "user":
            return job.user
        case "day":
            return datetime.fromtimestamp(span.start / US, UTC).date().isoformat()
        case "type":
            return one.type if one else job.spec.tpu.types[0]
        case "zone":
            return one.zone if one else next(iter(job.spec.tpu.zones), "")


def _by_day(span: Span) -> Iterator[Span]:
    start = span.start
    while start < span.end:
        end = min(span.end, (start // DAY + 1) * DAY)
        yield Span(span.part, start, end, span.slice)
        start = end


@cache
def _chips(type: str, slices: int) -> int:
    return accelerators.find(type).chips * slices
