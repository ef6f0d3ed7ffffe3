"""What budgets ask for: a warning, no slice that they do not pay for, an end before they are used up. Pure.

Nothing of it waits for a look at the cloud or a report of a host: rates and times are in the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tpujob.domain.actions import Decision
from tpujob.domain.events import BudgetWarned, EventKind
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Job, State
from tpujob.domain.money import budget
from tpujob.domain.observations import Account, Seen
from tpujob.domain.placement import Offer, circuits
from tpujob.domain.text import dollars


class Short(NamedTuple):
    """Why no slice may be asked for, or kept."""

    text: str
    own: bool  #: for want of the job's own money; else the job waits for its owner or its project to have some


def accounts(job: Job, seen: Seen, now: float) -> list[Account]:
    """The job's own first, then those that it shares."""
    own = budget.account(job, now, seen.granted)
    return [*((own,) if own else ()), *(budget.at(shared, now) for shared in seen.accounts)]


def used_up(job: Job, seen: Seen, now: float) -> Short | None:
    """Why its slices must be given back now, with the arithmetic; None: they need not."""
    for known in accounts(job, seen, now):
        if budget.used_up(known):
            return Short(budget.sums(known), own=known.whose == "job")
    return None


def paid_for(
    job: Job, seen: Seen, offers: Sequence[Offer], now: float
) -> tuple[list[Offer], Short | None]:
    """Those of the offers that every account pays for; when it is none of them, why."""
    left, grace = list(offers), job.spec.stop_grace
    for known in accounts(job, seen, now):
        paid = [offer for offer in left if budget.pays_for(known, offer, grace)]
        if left and not paid:
            cheapest = min(left, key=lambda offer: offer.usd_per_hour or 0.0)
            text = budget.too_little(known, cheapest, grace)
            return [], Short(text, own=known.whose == "job")
        left = paid
    return left, None


def keeps_nothing(job: Job, seen: Seen, now: float) -> bool:
    """Whether what it holds beside a serving slice must go, too: no other slice will be asked for."""
    if (
        job.state is State.QUEUED
        and paid_for(job, seen, circuits.allowed(job, seen.prices), now)[1]
    ):
        return True
    return used_up(job, seen, now) is not None


def warn(job: Job, seen: Seen, now: float) -> Decision | None:
    """Once for each limit. A shared budget is told of where it is shown, not in each of its jobs."""
    own = budget.account(job, now, seen.granted)
    if own is None or job.state.final or job.state is State.RELEASING:
        return None
    if not budget.warns(own) or job.warned_limit == own.limit or budget.used_up(own):
        return None
    text = f"{dollars(own.used)} of the budget of {dollars(own.limit)} are spent"
    warned = BudgetWarned(own.limit, own.used)
    return Decision(event(job, EventKind.BUDGET_WARNED, now, text, warned), wake_in=0)


def due_in(job: Job, seen: Seen, now: float) -> float | None:
    """Seconds until a budget asks for something; None: not before something else happens."""
    dues = [budget.due_in(known) for known in accounts(job, seen, now)]
    return min((due for due in dues if due is not None), default=None)
