"""What jobs have cost and what came of it, read from their records. Changes nothing, and holds nothing up."""

from collections.abc import Collection
from typing import cast, get_args

from tpujob.api import (
    CostGroup,
    CostPartView,
    CostRowView,
    CostView,
    LedgerJobView,
    LedgerSliceView,
    LedgerView,
)
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice
from tpujob.domain.money import ledger, report
from tpujob.domain.money.goodput import TimePart
from tpujob.domain.money.report import CostReport, Group, Row
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest
from tpujob.ports import Clock, Store
from tpujob.service.job_index import JobIndex
from tpujob.service.job_index.spending import EndedSpending

CHIP_HOUR = 3600 * 1_000_000  #: in chip-microseconds
PARTS = tuple(TimePart)  #: in the order in which they are shown


class Costs:
    """The part of `api.JobsApi` that is about money."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        index: JobIndex,
        owner: str = "local",
        *,
        emulated: bool = False,
    ) -> None:
        """`emulated`: nothing is paid, and amounts are Google's list prices."""
        self._store, self._clock, self._owner, self._emulated = store, clock, owner, emulated
        self._ended = EndedSpending(store, index)

    def cost(self, *, by: str = "job", user: str = "", job: str = "") -> CostView:
        if by not in get_args(CostGroup):
            groups = ", ".join(get_args(CostGroup))
            raise BadRequest(f"costs are not shown by {by[:40]!r}", hint=f"one of: {groups}")
        now, group = self._clock.now(), cast(CostGroup, by)
        found, copies = (
            self._of_one(job, user, now, group) if job else self._ended.report(group, user, now)
        )
        return CostView(
            at=rfc3339(now),
            by=group,
            rows=[self._row(row) for row in found.rows],
            total=self._row(found.total),
            copies_micros=copies,
            emulated=self._emulated,
        )

    def _of_one(self, job: str, user: str, now: float, by: Group) -> tuple[CostReport, int]:
        jobs = self._store.list()
        wanted = [j for j in jobs if job in (j.id, j.group) and user in ("", j.user)]
        found = report.report(wanted, now, by, ledger.covered(jobs))  # jobs share a grant
        return found, sum(copy.micros for one in wanted for copy in one.copies)

    def _row(self, row: Row) -> CostRowView:
        shares = [(part, row.parts[part]) for part in PARTS if part in row.parts]
        return CostRowView(
            key=row.key,
            name=row.name,
            jobs=len(row.jobs),
            slices=len(row.slices),
            open_slices=len(row.open),
            chip_hours=_hours(row.billed),
            unpriced_chip_hours=_hours(row.unpriced),
            list_micros=row.list,
            least_micros=row.list - row.unsure,
            pay_micros=0 if self._emulated else row.pay,
            goodput=row.goodput,
            all_chip_hours=_hours(row.chip_time),
            parts=[
                CostPartView(
                    part=part, chip_hours=_hours(share.chip_time), list_micros=share.micros
                )
                for part, share in shares
            ],
        )

    def ledger(self) -> LedgerView:
        jobs = self._store.list()
        covered = ledger.covered(jobs)
        return LedgerView(
            at=ledger.moment(self._clock.now()),
            owner=self._owner,
            jobs=[_ledger_job(job, covered) for job in jobs],
        )


def _ledger_job(job: Job, covered: Collection[tuple[str, str]]) -> LedgerJobView:
    return LedgerJobView(
        job=job.id,
        name=job.name,
        slices=[
            _ledger_slice(job, one, covered)
            for one in job.slices
            if one.ready_at is not None and not ledger.free(job, one)
        ],
    )


def _ledger_slice(job: Job, one: Slice, covered: Collection[tuple[str, str]]) -> LedgerSliceView:
    return LedgerSliceView(
        slice=one.name,
        generation=accelerators.find(one.type).generation,
        zone=one.zone,
        pricing=one.pricing,
        chips=ledger.chips(one),
        ready=ledger.moment(one.ready_at or 0.0),
        gone=None if one.gone_at is None else ledger.moment(one.gone_at),
        micros_per_hour=ledger.rate(one),
        granted=(job.id, one.name) in covered,
    )


def _hours(chip_time: int) -> float:
    return round(chip_time / CHIP_HOUR, 6)
