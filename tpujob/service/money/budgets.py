"""Budgets of money: the checks when a job is submitted or resumed, and the views. Pure.

The rules are in `domain/money/budget.py`; `domain/decide/limits.py` applies them to jobs that run or wait.
"""

from collections.abc import Sequence

from tpujob.api import SpendingView
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.model import Job, State
from tpujob.domain.money import budget
from tpujob.domain.money.estimate_shapes import CostKind, Estimate
from tpujob.domain.observations import Account, Funds
from tpujob.domain.spec import JobSpec, check_usd
from tpujob.domain.text import dollars, many, rfc3339
from tpujob.errors import BadRequest, BadSpec, IllegalInState


def check_spec(spec: JobSpec, offers: Sequence[Offer], now: float) -> None:
    """Raise BadSpec if the job's own budget pays for no slice of these offers, or if one of them has no price."""
    if spec.budget is None:
        return
    own = Account("job", budget.micros(spec.budget.usd), used=0, reserve=0, burn=0, at=now)
    unpriced = next((offer for offer in offers if offer.usd_per_hour is None), None)
    if unpriced:
        raise BadSpec(
            f"budget: {budget.unpriced(own, unpriced)}",
            hint="leave that type or zone out, or the budget",
        )
    _, short = budget.paid_for([own], offers, spec.stop_grace)
    if short:
        raise BadSpec(f"budget.usd: {short.text}", hint="give it a larger budget")


def check_estimate(spec: JobSpec, offer: Offer, estimate: Estimate, how: str) -> None:
    """Raise BadSpec if the slices of the estimate and their release cost more than the job's own budget. `how` is the
    source of the hours. Without hours or a price, nothing is checked."""
    if spec.budget is None or estimate.use.hours is None or not estimate.priced:
        return
    slices, out = estimate.pay_of(CostKind.SLICES), budget.reserve(offer, spec.stop_grace)
    limit = budget.micros(spec.budget.usd)
    if slices + out > limit:
        hours = f"{estimate.use.hours:.2f} h of {offer.type} in {offer.zone} cost {dollars(slices)}"
        raise BadSpec(
            f"budget.usd: the job is estimated to cost more than {dollars(limit)}: {hours} ({how}), and releasing the "
            f"slice up to {dollars(out)}",
            hint="give it a larger budget or less work; `tpujob cost estimate FILE` shows each line",
        )


def paid_hours(spec: JobSpec, offer: Offer, estimate: Estimate) -> float | None:
    """Return the hours of slices that the job's own budget pays for, with their release; None: it has no budget, or its
    slices cost nothing or have no price."""
    slices = estimate.pay_of(CostKind.SLICES)
    if spec.budget is None or not slices:
        return None
    hours = 1.0 if estimate.use.hours is None else float(estimate.use.hours)
    left = budget.micros(spec.budget.usd) - budget.reserve(offer, spec.stop_grace)
    return max(0, left) * hours / slices


def check_new(job: Job, offers: Sequence[Offer], funds: Funds, now: float) -> None:
    """Raise IllegalInState if a budget that the new job would share pays for none of the offers."""
    if short := _shared_shortage(job, offers, funds, now):
        raise IllegalInState(short.text, hint="`tpujob cost budgets` shows what is left.")


def limit(usd: float) -> int:
    """Return the amount in micro-dollars. Raise BadRequest for an invalid amount."""
    try:
        return budget.micros(check_usd(usd))
    except ValueError as error:
        raise BadRequest(f"the budget {error}") from None


def check_resume(job: Job, funds: Funds, prices: PriceList, now: float) -> None:
    """Raise IllegalInState if a budget of the job does not pay for the slice that it holds, or for a new one."""
    accounts = budget.accounts(job, funds, now)
    if job.slice and job.state is not State.RELEASING:
        short = budget.shortage(accounts)
    else:
        _, short = budget.paid_for(accounts, circuits.allowed(job, prices), job.spec.stop_grace)
    if short is None:
        return
    hint = f"`tpujob resume {job.id} --budget USD` gives it more." if short.own else _SHARED
    raise IllegalInState(f"job {job.id} cannot continue: {short.text}", hint=hint)


_SHARED = "`tpujob cost budgets` shows what is left; the context's file has the limits."


def waits_for(job: Job, funds: Funds, prices: PriceList, now: float) -> str:
    """Return the reason why a queued job waits for a shared budget, with the arithmetic; empty: it waits for none."""
    if job.state is not State.QUEUED or not funds.accounts:
        return ""
    short = _shared_shortage(job, circuits.allowed(job, prices), funds, now)
    return f"waiting: {short.text}" if short else ""


def _shared_shortage(
    job: Job, offers: Sequence[Offer], funds: Funds, now: float
) -> budget.Shortage | None:
    """Return why the shared budgets pay for none of the offers; None: they pay for one."""
    shared = [budget.account_at(account, now) for account in funds.accounts]
    return budget.paid_for(shared, offers, job.spec.stop_grace)[1]


# Views ---------------------------------------------------------------------------------------------------------------


def views(job: Job, funds: Funds, now: float) -> list[SpendingView]:
    """Return the views of the job's budgets, its own first."""
    return [view(account) for account in budget.accounts(job, funds, now)]


def view(account: Account, job_id: str = "") -> SpendingView:
    """Return the view of a budget. `job_id`: the job whose own budget it is, where several are shown."""
    reached = budget.reached_at(account)
    spending = SpendingView(
        whose=f"job {job_id}" if job_id else account.whose,
        limit_micros=account.limit,
        used_micros=account.used,
        reserve_micros=account.reserve,
        micros_per_hour=account.burn,
        unpriced=account.unpriced,
        unreadable=[*account.unreadable],
        warned=budget.warns(account),
        used_up=budget.used_up(account),
        reached_at=None if reached is None else rfc3339(reached),
        anew_at=None if account.until is None else rfc3339(account.until),
    )
    spending["text"] = _summary(spending)
    return spending


def _summary(spending: SpendingView) -> str:
    """Return the budget in one line: `$41.20 of $50.00 spent (82%), $8.50/h now: lasts until 2026-11-29 14:05 UTC`."""
    whose = "" if spending["whose"] == "job" else f"{spending['whose']}: "
    spent, limit = spending["used_micros"], spending["limit_micros"]
    text = f"{whose}{dollars(spent)} of {dollars(limit)} spent ({spent / limit:.0%})"
    if unclear := spending["unreadable"]:
        text += f", without {many(len(unclear), 'job')} whose record cannot be read"
    if spending["unpriced"]:
        return f"{text}; the price of {spending['unpriced']} is unknown"
    if spending["used_up"]:
        return f"{text}; used up, with {dollars(spending['reserve_micros'])} reserved for saving and releasing"
    if spending["reached_at"]:
        until = spending["reached_at"][:16].replace("T", " ")
        return f"{text}, {dollars(spending['micros_per_hour'])}/h now: lasts until {until} UTC"
    return text
