"""What jobs spend together: the accounts of a user and of a project, kept up job by job. Pure.

A month is a calendar month, UTC. Of a slice that is billed across its first moment, each month gets what falls into it.
Slices without a known price are not in any sum: no slice is asked for without one where there is a shared budget.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from tpujob.domain.model import Job, Slice
from tpujob.domain.money import budget, ledger
from tpujob.domain.money.ledger import between, moment
from tpujob.domain.observations import Account


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """What all jobs of one user, or of the project, may cost."""

    limit: int  #: micro-dollars
    user: str = ""  #: empty: the project
    monthly: bool = False  #: each calendar month, UTC; else altogether

    @property
    def whose(self) -> str:
        return f"user {self.user}" if self.user else "project"


class Month(NamedTuple):
    """From its first moment to that of the next one, in seconds."""

    start: float
    end: float


def month(now: float) -> Month:
    first = datetime.fromtimestamp(now, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    later = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return Month(first.timestamp(), later.timestamp())


class Open(NamedTuple):
    """A slice that is there or asked for."""

    ready: int | None  #: microseconds since the epoch; None: not billed yet
    rate: int  #: micro-dollars an hour
    reserve: int  #: micro-dollars


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """What one job has in the sums."""

    user: str
    ever: int  #: micro-dollars of its slices that are gone
    lately: int  #: of these, in the month
    open: tuple[Open, ...] = ()


def share(job: Job, now: Month, granted: Collection[str] = ()) -> BudgetShare:
    """`granted`: its slices that a grant pays for."""
    paid = [one for one in budget.paid_slices(job, granted) if one.usd_per_hour is not None]
    gone = [one for one in paid if one.gone_at is not None]
    grace = job.spec.stop_grace
    return BudgetShare(
        user=job.user,
        ever=sum(_cost(one, 0.0) for one in gone),
        lately=sum(_cost(one, now.start) for one in gone),
        open=tuple(
            Open(
                None if one.ready_at is None else moment(one.ready_at),
                ledger.rate(one) or 0,
                budget.reserve(one, grace),
            )
            for one in paid
            if one.gone_at is None
        ),
    )


def _cost(one: Slice, since: float) -> int:
    """Micro-dollars of a slice that is gone, from then on."""
    assert one.gone_at is not None
    if one.ready_at is None:
        return 0
    ready, gone = moment(one.ready_at), moment(one.gone_at)
    return between(ledger.rate(one) or 0, ready, moment(since), gone)


@dataclass(slots=True)
class Sums:
    """The shares of all jobs, and what they come to."""

    month: Month
    shares: dict[str, BudgetShare] = field(default_factory=dict[str, BudgetShare])  #: by job

    def put(self, job_id: str, new: BudgetShare | None) -> None:
        """In the place of what the job had; None: the job is gone, and what it cost stays."""
        if new is not None:
            self.shares[job_id] = new
        elif job_id in self.shares:
            self.shares[job_id] = replace(self.shares[job_id], open=())

    def account(self, of: SharedBudget, now: float) -> Account:
        at, since = moment(now), moment(self.month.start if of.monthly else 0.0)
        mine = [one for one in self.shares.values() if of.user in ("", one.user)]
        there = [slice for one in mine for slice in one.open]
        billed = [(one.rate, one.ready) for one in there if one.ready is not None]
        return Account(
            whose=of.whose,
            limit=of.limit,
            used=sum(one.lately if of.monthly else one.ever for one in mine)
            + sum(between(rate, ready, since, at) for rate, ready in billed),
            reserve=sum(one.reserve for one in there),
            burn=sum(rate for rate, _ in billed),
            at=now,
            until=self.month.end if of.monthly else None,
        )
