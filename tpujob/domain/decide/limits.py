"""Decisions of budgets and `max_time`: a warning, no slice without money, an end at the limit. Pure.

They need no poll: rates and times are in the record. Only `max_time` waits until reports can be read.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tpujob.domain.actions import Decision
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.events import BudgetWarned, EventKind
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.money import budget
from tpujob.domain.money.budget import Shortage
from tpujob.domain.observations import Observation, Unknown
from tpujob.domain.text import dollars, duration


class ReachedLimit(NamedTuple):
    """A limit that is reached, so that the job's slices must be released."""

    cause: Cause  #: BUDGET or TIME_LIMIT
    text: str
    own: bool  #: of the job itself, not of its owner or its project


def used_up(job: Job, seen: Observation, now: float) -> ReachedLimit | None:
    """Return why its slices must be released now; None: they may stay. While reports cannot be read, `max_time` ends
    nothing: the program may have ended within its time."""
    left = _time_left(job, now)
    if left is not None and left <= 0 and not isinstance(seen.reports, Unknown):
        text = f"its time limit of {duration(job.spec.max_time or 0)} (`max_time`) is reached"
        return ReachedLimit(Cause.TIME_LIMIT, text, own=True)
    short = budget.shortage(budget.accounts(job, seen.funds, now))
    return ReachedLimit(Cause.BUDGET, short.text, short.own) if short else None


def _time_left(job: Job, now: float) -> float | None:
    """Return the seconds for which its program may still run; None: no limit. Attempts before the job's last resume
    after its end do not count."""
    if job.spec.max_time is None:
        return None
    runs = [a for a in job.attempts if a.running_at is not None and a.started_at >= job.fresh_at]
    ran = sum((now if a.ended_at is None else a.ended_at) - (a.running_at or now) for a in runs)
    return job.spec.max_time - ran


def paid_for(
    job: Job, seen: Observation, offers: Sequence[Offer], now: float
) -> tuple[list[Offer], Shortage | None]:
    """Return the offers that its budgets pay for; if there are none, why."""
    accounts = budget.accounts(job, seen.funds, now)
    return budget.paid_for(accounts, offers, job.spec.stop_grace)


def keeps_nothing(job: Job, seen: Observation, now: float) -> bool:
    """Return whether condemned slices must be released because the money or the time is used up."""
    if (
        job.state is State.QUEUED
        and paid_for(job, seen, circuits.allowed(job, seen.prices), now)[1]
    ):
        return True
    return used_up(job, seen, now) is not None


def warn(job: Job, seen: Observation, now: float) -> Decision | None:
    """Warn of the job's own budget, once for each limit. A shared budget causes no event of a job."""
    own = budget.account(job, now, seen.funds.granted)
    if own is None or job.state.final or job.state is State.RELEASING:
        return None
    if not budget.warns(own) or job.warned_limit == own.limit or budget.used_up(own):
        return None
    text = f"{dollars(own.used)} of the budget of {dollars(own.limit)} are spent"
    warned = BudgetWarned(own.limit, own.used)
    return Decision(event(job, EventKind.BUDGET_WARNED, now, text, warned), wake_in=0)


def due_in(job: Job, seen: Observation, now: float) -> float | None:
    """Return the seconds until a budget requires something; None: not before something else happens."""
    dues = [budget.due_in(account) for account in budget.accounts(job, seen.funds, now)]
    if job.state is State.RUNNING:
        left = _time_left(job, now)
        dues.append(left if left is None or left > 0 else 5.0)
    return min((due for due in dues if due is not None), default=None)
