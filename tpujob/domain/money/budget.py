"""Budgets: the account of a job's own budget, and the spending that any account allows. Pure, from our own clock.

A slice is billed until it is confirmed gone, so stopping costs money, too. The *reserve* of an account is that cost:
the price of every requested or living slice for LOOK + `stop_grace` + DELETION seconds. A job stops when the used
money and the reserve reach the limit, so it keeps the limit unless a deletion takes longer than DELETION.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tpujob.domain.capacity.offers import Offer
from tpujob.domain.model import Job, Slice
from tpujob.domain.money import ledger
from tpujob.domain.money.ledger import HOUR, US
from tpujob.domain.observations import Account, Funds
from tpujob.domain.text import dollars, duration, with_article

#: seconds until a tick finds that a budget is used up; a backend that runs only when called ticks once a minute
LOOK = 60.0
#: seconds that the cloud takes to delete a slice: inferred (live: delete-forced), as no documentation says it
DELETION = 120.0
#: seconds of work that a budget must pay for before a slice is requested; in less time no step is made
WORTH = 300.0


class Shortage(NamedTuple):
    """The reason why no slice may be requested, or kept, for lack of money."""

    text: str  #: with the arithmetic
    own: bool  #: the job's own budget is short, not that of its owner or its project


#: numerator and denominator of the share of a limit at which a warning is due
WARN_AT = (4, 5)


def limit(job: Job) -> int | None:
    """Return the micro-dollars that the job may cost; None: no limit."""
    if job.spend_limit is not None:
        return job.spend_limit
    return None if job.spec.budget is None else micros(job.spec.budget.usd)


def micros(usd: float) -> int:
    return round(usd * US)


def accounts(job: Job, funds: Funds, now: float) -> list[Account]:
    """Return the accounts that pay for the job: its own first, then the shared ones."""
    own = account(job, now, funds.granted)
    return [*((own,) if own else ()), *(account_at(shared, now) for shared in funds.accounts)]


def account(job: Job, now: float, granted: Collection[str] = ()) -> Account | None:
    """Return the account of the job's own budget; None: it has no budget. `granted`: slices that a grant pays for."""
    limit_micros = limit(job)
    if limit_micros is None:
        return None
    paid = paid_slices(job, granted)
    costs = {slice.name: ledger.micros([slice], now) for slice in paid}
    living = [slice for slice in paid if slice.gone_at is None]
    return Account(
        whose="job",
        limit=limit_micros,
        used=sum(cost or 0 for cost in costs.values()),
        reserve=sum(reserve(slice, job.spec.stop_grace) for slice in living),
        burn=sum(ledger.rate(slice) or 0 for slice in living if slice.ready_at is not None),
        at=now,
        unpriced=next((name for name, cost in costs.items() if cost is None), ""),
    )


def paid_slices(job: Job, granted: Collection[str]) -> list[Slice]:
    """Return the slices that the job pays for, up to what is certain: no grant covers them. One that was preempted in
    its first minute is free once it is gone: until then it may come back."""
    paid = (slice for slice in job.slices if slice.name not in granted)
    return [
        replace(slice, preempted_at=None) if slice.gone_at is None else ledger.certain(slice)
        for slice in paid
    ]


def reserve(slice: Slice | Offer, grace: float) -> int:
    """Return the micro-dollars that a slice costs from its release until it is gone."""
    return _cost(slice.usd_per_hour, LOOK + grace + DELETION)


def entry(slice: Slice | Offer, grace: float) -> int:
    """Return the micro-dollars that must be left before a slice is requested."""
    return _cost(slice.usd_per_hour, WORTH + LOOK + grace + DELETION)


def _cost(usd_per_hour: float | None, seconds: float) -> int:
    return 0 if usd_per_hour is None else ledger.accrued(micros(usd_per_hour), round(seconds * US))


# What an account allows ----------------------------------------------------------------------------------------------


def account_at(account: Account, now: float) -> Account:
    """Return the account at a later time, with the same slices."""
    passed = max(0, round((now - account.at) * US))
    return replace(account, used=account.used + ledger.accrued(account.burn, passed), at=now)


def used_up(account: Account) -> bool:
    """Return whether the account's slices must be released now."""
    return bool(account.unpriced) or account.used + account.reserve >= account.limit


def shortage(accounts: Iterable[Account]) -> Shortage | None:
    """Return why the slices must be released now; None: every account has enough."""
    return next((Shortage(sums(a), own=a.whose == "job") for a in accounts if used_up(a)), None)


def pays_for(account: Account, offer: Offer | Slice, grace: float) -> bool:
    """Return whether the account pays for such a slice. Without a price it does not: the limit could not be kept."""
    if offer.usd_per_hour is None or account.unpriced:
        return False
    return account.used + account.reserve + entry(offer, grace) <= account.limit


def paid_for(
    accounts: Iterable[Account], offers: Sequence[Offer], grace: float
) -> tuple[list[Offer], Shortage | None]:
    """Return the offers that every account pays for, and the reason if there are none."""
    left = list(offers)
    for account in accounts:
        paid = [offer for offer in left if pays_for(account, offer, grace)]
        if left and not paid:
            text = _explain_rejection(account, left, grace)
            return [], Shortage(text, own=account.whose == "job")
        left = paid
    return left, None


def warns(account: Account) -> bool:
    numerator, denominator = WARN_AT
    return account.used * denominator >= account.limit * numerator


def due_in(account: Account) -> float | None:
    """Return the seconds until the account warns or is used up, whichever is next; None: neither will happen."""
    if not account.burn:
        return None
    numerator, denominator = WARN_AT
    warning_at = -(-account.limit * numerator // denominator)  # rounded up
    marks = (account.limit - account.reserve, warning_at)
    ahead = [mark - account.used for mark in marks if mark > account.used]
    return min(ahead) * HOUR / account.burn / US if ahead else None


def reached_at(account: Account) -> float | None:
    """Return when the account's slices will be released, at the present rate; None: never."""
    if not account.burn:
        return None
    left = account.limit - account.reserve - account.used
    return account.at + max(0, left) * HOUR / account.burn / US


# In words ------------------------------------------------------------------------------------------------------------


def name(account: Account) -> str:
    """Return the account's name in a sentence: `the budget`, `the budget of user ada`."""
    return "the budget" if account.whose == "job" else f"the budget of {account.whose}"


def sums(account: Account) -> str:
    """Return the arithmetic of an account that is used up."""
    if account.unpriced:
        return f"{name(account)} cannot be kept: the price of {account.unpriced} is unknown"
    text = f"{name(account)}, {dollars(account.limit)}, is used up: {dollars(account.used)} spent"
    if account.reserve:
        text += f", and up to {dollars(account.reserve)} to save and to release the slice"
    return text


def unpriced(account: Account, offer: Offer) -> str:
    """Return the message about an offer without a price."""
    unknown = f"the price of {with_article(offer.pricing)} {offer.type} in {offer.zone} is unknown"
    return f"{unknown}, so {name(account)} cannot be kept"


def _explain_rejection(account: Account, offers: Sequence[Offer], grace: float) -> str:
    """Return the arithmetic of the cheapest of the offers, none of which the account pays for."""
    priced = [offer for offer in offers if offer.usd_per_hour is not None]
    if account.unpriced:
        return sums(account)
    if not priced:
        return unpriced(account, offers[0])
    offer = min(priced, key=lambda offer: offer.usd_per_hour or 0.0)
    left = account.limit - account.used - account.reserve
    rate = dollars(micros(offer.usd_per_hour or 0.0))
    spent = f"{dollars(account.used)} of {dollars(account.limit)} spent"
    if account.reserve:
        spent += f", {dollars(account.reserve)} needed to release what is held"
    needed = f"{duration(WORTH)} of {offer.type} in {offer.zone} at {rate}/h and its release cost"
    return (
        f"{name(account)} does not pay for a slice: {spent}, {dollars(max(0, left))} left; "
        f"{needed} {dollars(entry(offer, grace))}"
    )
