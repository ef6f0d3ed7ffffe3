"""Shared budgets: the accounts of a user and of a project, kept up to date job by job. Pure.

A month is a calendar month, UTC. A slice that is billed across midnight of the first has a cost in both months. Slices
without a known price are in no sum: no slice is requested without a price where a shared budget exists.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from tpujob.domain.model import Job, Slice
from tpujob.domain.money import budget, ledger
from tpujob.domain.money.ledger import between, moment
from tpujob.domain.observations import Account


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The limit of what all jobs of one user, or of the project, may cost."""

    limit: int  #: micro-dollars
    user: str = ""  #: empty: the project
    monthly: bool = False  #: the limit is for each calendar month, UTC; else for all time

    @property
    def whose(self) -> str:
        return f"user {self.user}" if self.user else "project"


class Month(NamedTuple):
    """A calendar month: its first moment and that of the next month, in seconds since the epoch."""

    start: float
    end: float


def month(now: float) -> Month:
    first = datetime.fromtimestamp(now, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    later = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return Month(first.timestamp(), later.timestamp())


class Open(NamedTuple):
    """The rate and the reserve of a slice that is requested or living."""

    ready: int | None  #: microseconds since the epoch; None: not yet billed
    rate: int  #: micro-dollars an hour
    reserve: int  #: micro-dollars


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """The part of one job in the sums."""

    user: str
    ever: int  #: micro-dollars of the job's slices that are gone
    lately: int  #: the part of `ever` in the present month
    open: tuple[Open, ...] = ()


def share(job: Job, now: Month, granted: Collection[str] = ()) -> BudgetShare:
    """Return the part of the job in the sums. `granted`: its slices that a grant pays for."""
    paid = [slice for slice in budget.paid_slices(job, granted) if slice.usd_per_hour is not None]
    billed = _billed(paid)
    grace = job.spec.stop_grace
    return BudgetShare(
        user=job.user,
        ever=_cost(billed, 0.0),
        lately=_cost(billed, now.start),
        open=tuple(
            Open(
                None if slice.ready_at is None else moment(slice.ready_at),
                ledger.rate(slice) or 0,
                budget.reserve(slice, grace),
            )
            for slice in paid
            if slice.gone_at is None
        ),
    )


class BilledTime(NamedTuple):
    """The bill of a slice that is gone, in micro-dollars and microseconds."""

    rate: int
    ready: int
    gone: int


def _billed(slices: Iterable[Slice]) -> list[BilledTime]:
    return [
        BilledTime(ledger.rate(slice) or 0, moment(slice.ready_at), moment(slice.gone_at))
        for slice in slices
        if slice.ready_at is not None and slice.gone_at is not None
    ]


def _cost(billed: Iterable[BilledTime], since: float) -> int:
    return sum(between(rate, ready, moment(since), gone) for rate, ready, gone in billed)


@dataclass(slots=True)
class Sums:
    """The shares of all jobs, from which accounts are summed."""

    month: Month
    shares: dict[str, BudgetShare] = field(default_factory=dict[str, BudgetShare])  #: by job

    def put(self, job_id: str, new: BudgetShare | None) -> None:
        """Replace the share of the job; None: the job was deleted, and the cost of its ended slices stays."""
        if new is not None:
            self.shares[job_id] = new
        elif job_id in self.shares:
            self.shares[job_id] = replace(self.shares[job_id], open=())

    def account(self, of: SharedBudget, now: float) -> Account:
        since = moment(self.month.start if of.monthly else 0.0)
        shares = [share for share in self.shares.values() if of.user in ("", share.user)]
        open_slices = [slice for share in shares for slice in share.open]
        billed = [(slice.rate, slice.ready) for slice in open_slices if slice.ready is not None]
        return Account(
            whose=of.whose,
            limit=of.limit,
            used=sum(share.lately if of.monthly else share.ever for share in shares)
            + sum(between(rate, ready, since, moment(now)) for rate, ready in billed),
            reserve=sum(slice.reserve for slice in open_slices),
            burn=sum(rate for rate, _ in billed),
            at=now,
            until=self.month.end if of.monthly else None,
        )
