"""Accounts of budgets in whole micro-dollars: what they allow, and their texts."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.records import NOW, SPEC, job_in
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.model import Job, State
from tpujob.domain.money import budget
from tpujob.domain.money.budget import Shortage
from tpujob.domain.money.ledger import US, usd
from tpujob.domain.observations import Account
from tpujob.domain.spec import dump, parse

#: seconds that a slice is billed after it was given up: a look, the grace of the spec, the deletion
LEAVING = 60 + 30 + 120
SLICE = job_in(State.RUNNING).slices[0]  # $1 an hour, ready for 400 s
OFFER = Offer(
    "v4-16", "us-central2-b", "spot", "cloud-tpu", "r", 3.6
)  # a tenth of a cent each second


def with_budget(job: Job, usd: float | None, **changes: Any) -> Job:
    fields = {**dump(SPEC), "budget": None if usd is None else {"usd": usd}}
    return replace(job, spec=parse(fields), **changes)


def account_with(
    used: int, reserve: int = 0, burn: int = 0, limit: int = 50 * US, **fields: Any
) -> Account:
    return Account("job", limit, used, reserve, burn, NOW, **fields)


def test_a_job_without_a_budget_has_no_account() -> None:
    assert budget.account(job_in(State.RUNNING), NOW) is None


def test_the_account_counts_every_slice_until_it_is_seen_to_be_gone() -> None:
    gone = replace(SLICE, name="a", ready_at=NOW - 7200, gone_at=NOW - 3600)  # an hour: $1
    leaving = replace(SLICE, name="b", ready_at=NOW - 1800, delete_asked_at=NOW - 900)
    requested = replace(SLICE, name="c", ready_at=None, usd_per_hour=2.0)
    job = with_budget(job_in(State.RUNNING), 50, slices=(gone, leaving, requested))
    account = budget.account(job, NOW)
    assert (account.limit, account.used, account.burn) == (50 * US, 1_500_000, 1_000_000)
    assert account.reserve == (3 * LEAVING * US + 1800) // 3600, "also of a slice not there yet"
    assert account.used == round((usd(job.slices, NOW) or 0) * US)


def test_what_a_grant_pays_for_is_not_counted() -> None:
    job = with_budget(job_in(State.RUNNING), 50)
    account = budget.account(job, NOW, granted={SLICE.name})
    assert (account.used, account.reserve, account.burn) == (0, 0, 0)


def test_a_first_minute_that_is_free_uses_no_budget() -> None:
    brief = replace(SLICE, pricing="spot", ready_at=NOW - 900, preempted_at=NOW - 850)
    job = with_budget(job_in(State.RUNNING), 50, slices=(replace(brief, gone_at=NOW - 840),))
    account = budget.account(job, NOW)
    assert account.used == usd(job.slices, NOW) == 0
    account = budget.account(replace(job, slices=(brief,)), NOW)
    assert account.used > 0, "until it is seen to be gone it may come back"


def test_a_price_that_is_unknown_is_never_counted_as_nothing() -> None:
    job = with_budget(
        job_in(State.RUNNING), 50, slices=(replace(SLICE, usd_per_hour=None, ready_at=1.0),)
    )
    account = budget.account(job, NOW)
    assert account.unpriced == SLICE.name
    assert budget.used_up(account)
    assert "the price of tj-000001-1 is unknown" in budget.sums(account)
    assert not budget.pays_for(account_with(0), replace(OFFER, usd_per_hour=None), 30)


def test_a_later_limit_replaces_that_of_the_spec() -> None:
    job = with_budget(job_in(State.RUNNING), 50, spend_limit=80 * US)
    assert budget.limit(job) == 80 * US
    assert budget.limit(with_budget(job, None)) == 80 * US
    assert budget.limit(replace(job, spend_limit=None)) == 50 * US


def test_it_is_used_up_when_only_the_way_out_is_left() -> None:
    assert not budget.used_up(account_with(49_799_999, 200_000))
    assert budget.used_up(account_with(49_800_000, 200_000))
    assert budget.sums(account_with(49_800_000, 200_000)) == (
        "the budget, $50.00, is used up: $49.80 spent, and up to $0.20 to save and to release the "
        "slice"
    )


def test_a_slice_is_asked_for_if_it_can_be_of_use() -> None:
    needs = round((300 + LEAVING) * 0.001 * US)
    assert budget.pays_for(account_with(50 * US - needs), OFFER, 30)
    poor = account_with(50 * US - needs + 1)
    assert not budget.pays_for(poor, OFFER, 30)
    assert budget.paid_for([poor], [OFFER], 30) == (
        [],
        Shortage(
            "the budget does not pay for a slice: $49.49 of $50.00 spent, $0.51 left; 5 min of v4-16 in "
            "us-central2-b at $3.60/h and its release cost $0.51",
            own=True,
        ),
    )


def test_it_warns_at_four_fifths() -> None:
    assert not budget.warns(account_with(39_999_999))
    assert budget.warns(account_with(40 * US))


def test_when_something_is_due() -> None:
    going = account_with(30 * US, 1 * US, 10 * US)
    assert budget.due_in(going) == 3600.0, "the warning, at $40"
    assert budget.due_in(replace(going, used=44 * US)) == 1800.0, "the end, at $49"
    assert budget.due_in(replace(going, used=49 * US)) is None, "it is due now"
    assert budget.due_in(replace(going, burn=0)) is None
    assert budget.reached_at(replace(going, used=44 * US)) == NOW + 1800


@given(
    st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**7), st.integers(1, 10**9),
)  # fmt: skip
def test_something_is_due_at_the_due_time(limit: int, used: int, reserve: int, burn: int) -> None:
    """Else a tick would come, find nothing, and come again at once; or too late."""
    now = account_with(used, reserve, burn, limit)
    due = budget.due_in(now)
    if due is None:
        return
    then = budget.account_at(now, NOW + due + 2e-6 * 3600 / burn * US + 1e-5)
    assert budget.used_up(then) or (budget.warns(then) and not budget.warns(now))
