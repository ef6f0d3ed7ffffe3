"""Shared budgets: the accounts of a user and of a project, kept up to date job by job. Pure.

A month is a calendar month, UTC. A slice that is billed across midnight of the first has a cost in both months. Slices
without a known price are in no sum: no slice is requested without a price where a shared budget exists.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from tpujob.domain.model import Job
from tpujob.domain.money import budget, ledger
from tpujob.domain.money.ledger import BilledSlice, moment
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


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """The part of one job in the sums."""

    user: str
    ever: int  #: micro-dollars of the job's slices that are gone
    lately: int  #: the part of `ever` in the present month
    open: tuple[BilledSlice, ...] = ()  #: those that are still billed
    reserve: int = 0  #: micro-dollars


def share(job: Job, now: Month, granted: Collection[str] = ()) -> BudgetShare:
    """Return the part of the job in the sums. `granted`: its slices that a grant pays for."""
    paid = [slice for slice in budget.paid_slices(job, granted) if slice.usd_per_hour is not None]
    rows, grace = ledger.rows(paid), job.spec.stop_grace
    ended = [row for row in rows if row.gone is not None]
    return BudgetShare(
        user=job.user,
        ever=ledger.cost(ended) or 0,
        lately=ledger.cost(ended, since=moment(now.start)) or 0,
        open=tuple(row for row in rows if row.gone is None),
        reserve=sum(budget.reserve(slice, grace) for slice in paid if slice.gone_at is None),
    )


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
            self.shares[job_id] = replace(self.shares[job_id], open=(), reserve=0)

    def account(self, of: SharedBudget, now: float) -> Account:
        since = moment(self.month.start if of.monthly else 0.0)
        shares = [share for share in self.shares.values() if of.user in ("", share.user)]
        billed = [row for share in shares for row in share.open]
        return Account(
            whose=of.whose,
            limit=of.limit,
            used=sum(share.lately if of.monthly else share.ever for share in shares)
            + (ledger.cost(billed, moment(now), since) or 0),
            reserve=sum(share.reserve for share in shares),
            burn=sum(row.rate or 0 for row in billed),
            at=now,
            until=self.month.end if of.monthly else None,
        )
