"""What may still be spent: the account of a job's own budget, and what any account allows. Pure, from our own clock.

A slice is billed until it is seen to be gone, so stopping costs money, too. An account counts that as its *reserve*:
what every slice that is there or asked for costs for LEAVING seconds and the program's `stop_grace`. A job that stops
when what is used and the reserve reach the limit keeps the limit, unless a deletion takes longer than that. The
seconds are *inferred* (live: delete-forced): no documentation says how long a deletion takes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tpujob.domain.capacity.offers import Offer
from tpujob.domain.model import Job, Slice
from tpujob.domain.money import ledger
from tpujob.domain.money.ledger import HOUR, US
from tpujob.domain.observations import Account, Funds
from tpujob.domain.text import dollars, duration

#: seconds from the moment at which nothing is left until a look finds that out: a pass of a backend that only runs
#: when it is called
LOOK = 60.0
#: seconds that the cloud takes to delete a slice
DELETION = 120.0
#: seconds for which a slice must be paid for, besides, before it is asked for: less is gone before a step is made
WORTH = 300.0


class Short(NamedTuple):
    """Why no slice may be asked for, or kept, with the arithmetic."""

    text: str
    own: bool  #: for want of the job's own money, not of its owner's or its project's


#: four fifths of a limit are worth a warning
WARN_AT = (4, 5)


def limit(job: Job) -> int | None:
    """Return the micro-dollars that the job may cost; None: no limit."""
    if job.spend_limit is not None:
        return job.spend_limit
    return None if job.spec.budget is None else micros(job.spec.budget.usd)


def micros(usd: float) -> int:
    return round(usd * US)


def accounts(job: Job, funds: Funds, now: float) -> list[Account]:
    """The job's own first, then those that it shares."""
    own = account(job, now, funds.granted)
    return [*((own,) if own else ()), *(at(shared, now) for shared in funds.accounts)]


def account(job: Job, now: float, granted: Collection[str] = ()) -> Account | None:
    """What the job has used of its own budget; None: it has none. `granted`: its slices that a grant pays for."""
    most = limit(job)
    if most is None:
        return None
    paid = paid_slices(job, granted)
    bills = {one.name: ledger.bill(one, now) for one in paid}
    return Account(
        whose="job",
        limit=most,
        used=sum(found.most or 0 for found in bills.values()),
        reserve=sum(reserve(one, job.spec.stop_grace) for one in paid if one.gone_at is None),
        burn=sum(ledger.rate(one) or 0 for one in paid if bills[one.name].open),
        at=now,
        unpriced=next((name for name, found in bills.items() if found.most is None), ""),
    )


def paid_slices(job: Job, granted: Collection[str]) -> list[Slice]:
    """Return the slices without those that a grant pays for, and those that are gone and were free."""
    return [
        one
        for one in job.slices
        if one.name not in granted and not (one.gone_at is not None and ledger.free(job, one))
    ]


def reserve(one: Slice | Offer, grace: float) -> int:
    """Return the micro-dollars that such a slice costs from its release until it is gone."""
    return _cost(one.usd_per_hour, LOOK + grace + DELETION)


def entry(one: Slice | Offer, grace: float) -> int:
    """Return the micro-dollars that must be left before such a slice is requested."""
    return _cost(one.usd_per_hour, WORTH + LOOK + grace + DELETION)


def _cost(usd_per_hour: float | None, seconds: float) -> int:
    return 0 if usd_per_hour is None else ledger.accrued(micros(usd_per_hour), round(seconds * US))


# What an account allows ----------------------------------------------------------------------------------------------


def at(known: Account, now: float) -> Account:
    """Return the account at a later time, if nothing but time has passed."""
    passed = max(0, round((now - known.at) * US))
    return replace(known, used=known.used + ledger.accrued(known.burn, passed), at=now)


def used_up(known: Account) -> bool:
    """Whether the slices must be released now."""
    return bool(known.unpriced) or known.used + known.reserve >= known.limit


def short(known: Iterable[Account]) -> Short | None:
    """Why the slices must be released now; None: every account has enough."""
    return next((Short(sums(one), own=one.whose == "job") for one in known if used_up(one)), None)


def pays_for(known: Account, offer: Offer | Slice, grace: float) -> bool:
    """Return whether such a slice may be requested; not without a price, as its budget could not end it in time."""
    if offer.usd_per_hour is None or known.unpriced:
        return False
    return known.used + known.reserve + entry(offer, grace) <= known.limit


def paid_for(
    known: Iterable[Account], offers: Sequence[Offer], grace: float
) -> tuple[list[Offer], Short | None]:
    """Return the offers that every account pays for; if there are none, why."""
    left = list(offers)
    for one in known:
        paid = [offer for offer in left if pays_for(one, offer, grace)]
        if left and not paid:
            return [], Short(_too_little(one, left, grace), own=one.whose == "job")
        left = paid
    return left, None


def warns(known: Account) -> bool:
    some, of = WARN_AT
    return known.used * of >= known.limit * some


def due_in(known: Account) -> float | None:
    """Return the seconds until it warns or is used up, whichever is next; None: neither, as things are."""
    if not known.burn:
        return None
    some, of = WARN_AT
    marks = [known.limit - known.reserve, -(-known.limit * some // of)]
    ahead = [mark - known.used for mark in marks if mark > known.used]
    return min(ahead) * HOUR / known.burn / US if ahead else None


def reached_at(known: Account) -> float | None:
    """When its slices will be released, at the present rate; None: never."""
    if not known.burn:
        return None
    left = known.limit - known.reserve - known.used
    return known.at + max(0, left) * HOUR / known.burn / US


# In words ------------------------------------------------------------------------------------------------------------


def name(known: Account) -> str:
    """`the budget`, `the budget of user ada`."""
    return "the budget" if known.whose == "job" else f"the budget of {known.whose}"


def sums(known: Account) -> str:
    """The arithmetic of an account that is used up."""
    if known.unpriced:
        return f"{name(known)} cannot be kept: the price of {known.unpriced} is unknown"
    text = f"{name(known)}, {dollars(known.limit)}, is used up: {dollars(known.used)} spent"
    if known.reserve:
        text += f", and up to {dollars(known.reserve)} to save and to release the slice"
    return text


def unpriced(known: Account, offer: Offer) -> str:
    """The message about an offer without a price."""
    return f"the price of a {offer.pricing} {offer.type} in {offer.zone} is unknown, so {name(known)} cannot be kept"


def _too_little(known: Account, offers: Sequence[Offer], grace: float) -> str:
    """Return the arithmetic of the cheapest slice that the account does not pay for."""
    priced = [offer for offer in offers if offer.usd_per_hour is not None]
    if known.unpriced or not priced:
        return sums(known) if known.unpriced else unpriced(known, offers[0])
    offer = min(priced, key=lambda each: each.usd_per_hour or 0.0)
    left = known.limit - known.used - known.reserve
    rate = dollars(micros(offer.usd_per_hour or 0.0))
    spent = f"{dollars(known.used)} of {dollars(known.limit)} spent"
    if known.reserve:
        spent += f", {dollars(known.reserve)} needed to release what is held"
    needed = f"{duration(WORTH)} of {offer.type} in {offer.zone} at {rate}/h and its release cost"
    return (
        f"{name(known)} does not pay for a slice: {spent}, {dollars(max(0, left))} left; "
        f"{needed} {dollars(entry(offer, grace))}"
    )
