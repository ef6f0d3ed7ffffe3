"""Reports of what jobs have cost, from their records. Changes nothing, and blocks no tick."""

from collections.abc import Collection

from tpujob.api import (
    CostPartView,
    CostRowView,
    CostView,
    LedgerJobView,
    LedgerSliceView,
    LedgerView,
    ReachedView,
)
from tpujob.domain.hardware import accelerators
from tpujob.domain.members import folded
from tpujob.domain.model import Job, Slice
from tpujob.domain.money import ledger, report
from tpujob.domain.money import reached as peak
from tpujob.domain.money.goodput import TimePart
from tpujob.domain.money.period import Period, day_of, parse_period
from tpujob.domain.money.report import GROUPS, CostReport, Group, Grouping, Row
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest
from tpujob.ports import Clock, Store
from tpujob.service.job_index import JobIndex
from tpujob.service.job_index.spending import EndedSpending


class Costs:
    """The part of `api.JobsApi` that reports past costs."""

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

    def cost(
        self,
        *,
        by: str = "job",
        then: str = "",
        user: str = "",
        job: str = "",
        since: str = "",
        until: str = "",
    ) -> CostView:
        grouping = Grouping(_group(by), _group(then) if then else None)
        if by == then:
            raise BadRequest(f"rows by {by} cannot be divided by {then} again")
        now, user, period = self._clock.now(), folded(user), parse_period(since, until)
        summary, copies = (
            self._of_one(job, user, now, grouping, period)
            if job
            else self._ended.report(grouping, user, now, period)
        )
        return CostView(
            at=rfc3339(now),
            by=grouping.by,
            then=then,
            since=since,
            until=until,
            rows=[self._row(row) for row in summary.rows],
            total=self._row(summary.total),
            copies_micros=copies,
            emulated=self._emulated,
            unreadable=self._ended.unreadable(),
        )

    def reached(self) -> list[ReachedView]:
        parts = peak.reached(self._store.list())
        return [
            ReachedView(generation=name, least=part.least, most=part.most, jobs=part.jobs)
            for name, part in sorted(parts.items())
        ]

    def _of_one(
        self, job: str, user: str, now: float, by: Grouping, period: Period
    ) -> tuple[CostReport, int]:
        jobs = self._every_job()
        selected = [j for j in jobs if job in (j.id, j.group) and user in ("", j.user)]
        by = by._replace(days=bool(period))
        summary = report.report(selected, now, by, ledger.covered(jobs))  # jobs share a grant
        copies = (copy for j in selected for copy in j.copies)
        return (
            report.of_period(summary, period) if period else summary,
            sum(copy.micros for copy in copies if period.has(day_of(copy.started_at))),
        )

    def _every_job(self) -> list[Job]:
        """Return all jobs, and what is kept of removed ones."""
        jobs = {job.id: job for job in (*self._store.removed(), *self._store.list())}
        return [*jobs.values()]

    def _row(self, row: Row) -> CostRowView:
        shares = [(part, row.parts[part]) for part in TimePart if part in row.parts]
        return CostRowView(
            key=row.key,
            then=row.then,
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
            waited_chip_hours=_hours(row.waited),
            parts=[
                CostPartView(
                    part=part, chip_hours=_hours(share.chip_time), list_micros=share.micros
                )
                for part, share in shares
            ],
        )

    def ledger(self) -> LedgerView:
        jobs = self._every_job()
        covered = ledger.covered(jobs)
        return LedgerView(
            at=ledger.moment(self._clock.now()),
            owner=self._owner,
            jobs=[_ledger_job(job, covered) for job in jobs],
        )


def _group(name: str) -> Group:
    if name not in GROUPS:
        hint = f"one of: {', '.join(GROUPS)}"
        raise BadRequest(f"costs are not shown by {name[:40]!r}", hint=hint)
    return name


def _ledger_job(job: Job, covered: Collection[tuple[str, str]]) -> LedgerJobView:
    return LedgerJobView(
        job=job.id,
        name=job.name,
        slices=[
            _ledger_slice(job, slice, covered)
            for slice in job.slices
            if slice.ready_at is not None and not ledger.free(slice)
        ],
    )


def _ledger_slice(job: Job, slice: Slice, covered: Collection[tuple[str, str]]) -> LedgerSliceView:
    return LedgerSliceView(
        slice=slice.name,
        generation=accelerators.find(slice.type, slice.provider).generation,
        zone=slice.zone,
        pricing=slice.pricing,
        chips=accelerators.chips_of(slice),
        ready=ledger.moment(slice.ready_at or 0.0),
        gone=None if slice.gone_at is None else ledger.moment(slice.gone_at),
        micros_per_hour=ledger.rate(slice),
        granted=(job.id, slice.name) in covered,
    )


def _hours(chip_time: int) -> float:
    return round(chip_time / ledger.HOUR, 6)
