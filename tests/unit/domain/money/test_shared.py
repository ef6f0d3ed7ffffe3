"""Sums of what jobs spend, by user, project and month: the same as a count of all records."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tests.support.records import job_in
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.money.ledger import US, usd
from tpujob.domain.money.shared import Month, SharedBudget, Sums, month, share

DAY = 86400.0
NOV, DEC = (datetime(2026, m, 1, tzinfo=UTC).timestamp() for m in (11, 12))
SLICE = job_in(State.RUNNING).slices[0]  # $1 an hour
MONTHLY, EVER = SharedBudget(500 * US, monthly=True), SharedBudget(500 * US)
ADA = SharedBudget(100 * US, "ada")


def job_of(user: str, *slices: Slice) -> Job:
    return replace(job_in(State.RUNNING), user=user, slices=slices)


def billed(start: float, end: float | None, usd: float = 1.0, name: str = "a") -> Slice:
    return replace(SLICE, name=name, ready_at=start, gone_at=end, usd_per_hour=usd)


def sums(now: Month, *jobs: Job) -> Sums:
    totals = Sums(now)
    for number, job in enumerate(jobs):
        totals.put(str(number), share(job, now))
    return totals


def used(totals: Sums, now: float, *budgets: SharedBudget) -> list[int]:
    return [totals.account(budget, now).used // 1_000_000 for budget in budgets]


def test_a_month_is_one_of_the_calendar_in_utc() -> None:
    assert month(NOV) == month(DEC - 1) == Month(NOV, DEC)
    assert month(DEC) == (DEC, datetime(2027, 1, 1, tzinfo=UTC).timestamp())


def test_each_month_gets_what_falls_into_it() -> None:
    over = billed(DEC - DAY, DEC + DAY)
    for now, lately in ((month(NOV), 24), (month(DEC), 24)):
        gone = replace(over, gone_at=min(over.gone_at or 0.0, now.end))
        assert used(sums(now, job_of("ada", gone)), DEC + DAY, MONTHLY)[0] == lately
    still = replace(over, gone_at=None)
    assert used(sums(month(DEC), job_of("ada", still)), DEC + 2 * DAY, MONTHLY, EVER) == [48, 72]
    before = billed(NOV, NOV + DAY)
    assert used(sums(month(DEC), job_of("ada", before)), DEC, MONTHLY, EVER) == [0, 24]


def test_a_user_is_counted_in_the_project_too() -> None:
    jobs = (job_of("ada", billed(NOV, NOV + DAY)), job_of("bob", billed(NOV, None)))
    totals = sums(month(NOV), *jobs)
    assert used(totals, NOV + 2 * DAY, EVER, ADA) == [72, 24]
    project, ada = (totals.account(budget, NOV + 2 * DAY) for budget in (MONTHLY, ADA))
    assert (project.whose, project.burn, project.until) == ("project", 1_000_000, DEC)
    assert (ada.whose, ada.burn, ada.reserve, ada.until) == ("user ada", 0, 0, None)
    assert project.reserve == (210 * US + 1800) // 3600


def test_a_record_that_is_read_again_takes_the_place_of_the_old_one() -> None:
    totals = sums(month(NOV), job_of("ada", billed(NOV, None)))
    for _ in range(2):
        totals.put("0", share(job_of("ada", billed(NOV, NOV + DAY)), month(NOV)))
        assert used(totals, NOV + 9 * DAY, EVER, ADA) == [24, 24]
    totals.put("0", None)
    assert used(totals, NOV + 9 * DAY, EVER) == [24], "what a job cost stays when it is removed"


def test_a_first_minute_that_is_free_is_not_counted() -> None:
    brief = replace(billed(NOV, NOV + 50), pricing="spot", preempted_at=NOV + 45, usd_per_hour=7200)
    assert used(sums(month(NOV), job_of("ada", brief)), NOV + DAY, EVER, MONTHLY) == [0, 0]


TIMES = st.floats(0, 60 * DAY).map(lambda t: NOV - 10 * DAY + t)
SLICES = st.builds(
    lambda start, length, open, usd: billed(start, None if open else start + length, usd),
    TIMES, st.floats(0, 40 * DAY), st.booleans(), st.sampled_from([0.24493, 1.0, 307.2]),
)  # fmt: skip


@given(st.lists(SLICES, max_size=5), TIMES)
def test_altogether_it_is_what_the_report_says(slices: list[Slice], now: float) -> None:
    named = [replace(s, name=str(n)) for n, s in enumerate(slices)]
    past = [s for s in named if s.gone_at is None or s.gone_at <= now]
    job = job_of("ada", *past)
    account = sums(month(now), job).account(EVER, now)
    assert account.used == round((usd(job.slices, now) or 0) * US)
