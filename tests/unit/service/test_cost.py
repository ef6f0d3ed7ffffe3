"""The costs of jobs that really ran through a backend, in every grouping."""

import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.flow.page import lab
from tests.support.callers import ADA, NamedDoor
from tests.support.stage import SPEC, Stage
from tpujob.cli.commands.cost.report import cost_page
from tpujob.cli.render import words
from tpujob.domain.model import Grant, Job, State
from tpujob.domain.money import ledger, report
from tpujob.domain.money.removed import remainder
from tpujob.domain.money.report import Grouping
from tpujob.domain.text import dollars
from tpujob.errors import BadRequest
from tpujob.service.job_index.spending import EndedSpending
from tpujob.web.api import create_app


@pytest.fixture
def done(stage: Stage) -> str:
    """A job that waited, ran for an hour and succeeded."""
    job_id = stage.started()
    stage.clock.sleep(3600)
    stage.succeed(job_id)
    return job_id


def shown_total(stage: Stage) -> str:
    """The row of the total, as the page shows it."""
    app = create_app(stage.api.acting_for, NamedDoor(ADA))
    app.state.now = stage.clock.now
    page = TestClient(app, base_url="http://localhost").get(
        "/spend", headers={"accept": "text/html"}
    )
    row = re.search(r'<tr id="spend-".*?</tr>', page.text, re.DOTALL)
    assert row
    return row[0]


@pytest.mark.parametrize("by", report.GROUPS)
def test_each_grouping_has_the_same_total(stage: Stage, done: str, by: str) -> None:
    costs = stage.api.cost(by=by)
    spent = stage.api.get(done)["usd_spent"]
    assert spent
    assert costs["total"]["list_micros"] == round(spent * 1e6)
    assert sum(row["list_micros"] for row in costs["rows"]) == costs["total"]["list_micros"]
    for row in costs["rows"]:
        assert row["list_micros"] == sum(part["list_micros"] for part in row["parts"])
    keys = {"job": done, "user": "ada", "type": "v4-16", "zone": "us-central2-b", "share": ""}
    assert by == "day" or [row["key"] for row in costs["rows"]] == [keys[by]]


def test_a_program_without_steps_was_productive_when_it_succeeded(stage: Stage, done: str) -> None:
    total = stage.api.cost()["total"]
    hours = {part["part"]: part["chip_hours"] for part in total["parts"]}
    assert hours["productive"] == pytest.approx(8.0, rel=0.01)
    assert total["goodput"]
    assert 0.9 < total["goodput"] < 1.0


def test_a_report_says_what_all_records_say_whatever_becomes_of_jobs(stage: Stage) -> None:
    """Ended jobs are summed once: jobs end, come, change and go, money runs on, grants are shared."""
    dice, store, clock = Random(11), stage.store, stage.clock
    clock.time = lab.NOW
    spending = EndedSpending(store, stage.api.parts.index)

    def add(count: int) -> None:
        for _ in range(count):
            of = lab.job_in(dice.choice([*State]), dice.randrange(50))
            grants = tuple(Grant("v4", "us-central2-b", "spot", chips) for chips in (16, 40))
            lab.store_jobs(store, [replace(of, grants=dice.choice(((), grants[:1], grants[1:])))])

    add(40)
    for turn in range(30):
        job = dice.choice(store.list())
        match dice.randrange(4):
            case 0 if job.state.final:
                store.remove(job.id, lease=None, keep=remainder(job))
            case 1:
                add(1)
            case 2 if not job.state.final:
                over = {"state": State.SUCCEEDED, "finished_at": clock.now()}
                gone = (replace(s, gone_at=s.gone_at or clock.now()) for s in job.slices)
                change(stage, job, slices=tuple(gone), **over)
            case _:
                change(stage, job, message=f"turn {turn}")
        clock.sleep(dice.uniform(0, 5000))
        groups, user = dice.sample(report.GROUPS, 2), dice.choice(("", "ada", "bob"))
        by = Grouping(groups[0], dice.choice((groups[1], None)))
        jobs = [*store.list(), *store.removed()]
        own = [job for job in jobs if user in ("", job.user)]
        expected = report.report(own, clock.now(), by, ledger.covered(jobs))
        costs, _ = spending.report(by, user, clock.now())
        assert costs == expected, f"turn {turn}, by {by}, of {user or 'all'}"


def test_periods_add_up_to_all_time_and_a_removed_job_stays_in_each(stage: Stage) -> None:
    stage.clock.time = lab.NOW
    lab.store_jobs(stage.store, lab.full())
    api, jobs = stage.api, stage.store.list()
    whole = api.cost(by="user")["total"]["list_micros"]
    assert whole
    days = [row["key"] for row in api.cost(by="day")["rows"]]
    assert len(days) > 3
    middle = days[2]
    before = api.cost(by="user", until=middle)
    later = api.cost(by="user", since=days[3])
    assert 0 < before["total"]["list_micros"] < whole
    assert before["total"]["list_micros"] + later["total"]["list_micros"] == whole
    one = api.cost(by="share", then="type", since=middle, until=middle)
    by_day = {row["key"]: row["list_micros"] for row in api.cost(by="day")["rows"]}
    assert one["total"]["list_micros"] == by_day[middle]
    cells = api.cost(by="user", then="day")["rows"]
    assert sum(row["list_micros"] for row in cells) == whole
    assert {row["then"] for row in cells} == {*days}
    for user in ("ada", "bob"):
        of_user = api.cost(by="day", user=user, until=middle)["total"]["list_micros"]
        row = next(row for row in before["rows"] if row["key"] == user)
        assert of_user == row["list_micros"]
    jobs_before = api.cost(by="job", until=middle)
    for job in jobs:
        if job.state.final:
            stage.store.remove(job.id, lease=None, keep=remainder(job))
    assert api.cost(by="job", until=middle) == jobs_before


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"since": "yesterday"}, "since: 'yesterday' is not a day"),
        ({"until": "2026-11-31"}, "until: '2026-11-31' is not a day"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "ends on 2026-11-01, before it begins"),
        ({"by": "user", "then": "user"}, "cannot be divided by user again"),
        ({"by": "user", "then": "colour"}, "not shown by 'colour'"),
    ],
)
def test_a_period_or_a_group_that_is_none_is_refused(
    stage: Stage, asked: dict[str, str], says: str
) -> None:
    with pytest.raises(BadRequest, match=re.escape(says)):
        stage.api.cost(**asked)


def change(stage: Stage, job: Job, **changes: Any) -> None:
    to = replace(job, **changes)
    stage.store.commit(to, None, expected_version=job.version, op_id=f"{job.version}", lease=None)


def test_only_one_user_or_job(stage: Stage, done: str) -> None:
    assert stage.api.cost(user="bob")["rows"] == []
    assert stage.api.cost(job=done)["total"]["jobs"] == 1


def test_a_slice_that_a_grant_covers_is_listed_and_not_paid(stage: Stage, done: str) -> None:
    change(stage, stage.job(done), grants=(Grant("v4", "us-central2-b", "spot", 8),))
    total = stage.api.cost()["total"]
    assert total["list_micros"] > 0
    assert total["pay_micros"] == 0


def test_the_ledger_has_every_slice_that_was_billed(stage: Stage, done: str) -> None:
    ledger_view = stage.api.ledger()
    (job,) = ledger_view["jobs"]
    (billed,) = job["slices"]
    recorded = stage.job(done).slices[0]
    assert (job["job"], ledger_view["owner"], billed["slice"]) == (done, "local", recorded.name)
    assert (billed["generation"], billed["chips"], billed["granted"]) == ("v4", 8, False)
    assert recorded.ready_at
    assert recorded.gone_at
    assert billed["gone"] == round(recorded.gone_at * 1e6)
    assert billed["micros_per_hour"]
    spent = billed["micros_per_hour"] * (recorded.gone_at - recorded.ready_at) / 3600
    assert spent == pytest.approx(stage.api.cost()["total"]["list_micros"], abs=1)


def test_an_unknown_grouping_is_refused(stage: Stage) -> None:
    with pytest.raises(BadRequest, match="not shown by 'moon'"):
        stage.api.cost(by="moon")


def test_all_views_agree_that_the_emulator_bills_nothing(stage: Stage, done: str) -> None:
    stage.emulated = True
    costs = stage.api.cost(by="job")
    listed = costs["total"]["list_micros"]
    assert listed > 0
    assert costs["rows"][0]["pay_micros"] == costs["total"]["pay_micros"] == 0
    assert cost_page(costs, 100).splitlines()[2].split()[-2:] == [dollars(listed), "$0.00"]
    row = shown_total(stage)
    assert re.findall(r"\$[0-9.]+", row) == [dollars(listed), "$0.00"]
    assert "tpujob_pay_dollars 0.0\n" in stage.api.backend_metrics()
    estimate = stage.api.estimate(SPEC, {"hours": 2.0})
    assert estimate["list_micros"] > 0
    assert estimate["pay_micros"] == sum(line["pay_micros"] or 0 for line in estimate["lines"]) == 0
    assert (estimate["forecast"]["pay_micros"] or {})["high"] == 0


def test_goodput_and_its_parts_are_of_the_billed_time_wherever_they_are_shown(stage: Stage) -> None:
    """The job is held for a day, then waits for the cloud for two hours; its slice is billed for one."""
    job = stage.create()
    stage.api.hold(job)
    stage.clock.sleep(24 * 3600)
    stage.api.release(job)
    stage.cloud.waiting.add("us-central2-b")
    requested = stage.until(job, State.PROVISIONING).slices[-1]
    stage.clock.sleep(2 * 3600)
    stage.cloud.grant(requested.name)
    stage.running(job)
    stage.clock.sleep(3600)
    stage.succeed(job)
    costs = stage.api.cost()
    total = costs["total"]
    parts = {p["part"]: p["chip_hours"] for p in total["parts"]}
    assert total["waited_chip_hours"] == pytest.approx(16, abs=0.5), "two hours with eight chips"
    assert sum(parts.values()) == pytest.approx(total["chip_hours"] + total["waited_chip_hours"])
    assert total["goodput"] == pytest.approx(parts["productive"] / total["chip_hours"])

    row = shown_total(stage)
    good, *shown = map(int, re.findall(r"(\d+) %", row))
    assert good in shown, "the productive part is the goodput"
    assert sum(shown) <= 101
    assert "waited for the cloud: 16" in row
    assert re.search(r"waited for the cloud: 16\.\d", cost_page(costs, 100))


def test_what_an_action_costs_on_the_emulator_is_called_a_list_price(stage: Stage) -> None:
    job = stage.started()
    paid = {action["name"]: action["costs"] for action in stage.api.get(job)["actions"]}
    stage.emulated = True
    view = stage.api.get(job)
    assert view["emulated"]
    for action in view["actions"]:
        assert action["costs"] == f"{paid[action['name']]} (list price; the emulator bills nothing)"
    assert "bills nothing" in words.cost(view)


def test_what_a_removed_job_has_cost_stays_in_every_report(stage: Stage, done: str) -> None:
    """Also for a backend that starts later, and of a job that ended and was removed between two reports."""
    second = stage.started(run={"command": "private"})
    stage.clock.sleep(600)
    before = [stage.api.cost(by=by) for by in report.GROUPS]
    stage.succeed(second)
    spent = stage.api.get(second)["usd_spent"] + stage.api.get(done)["usd_spent"]
    records = [stage.job(job) for job in (done, second)]
    whole = report.report(records, stage.clock.now(), "job")
    for job in (done, second):
        stage.api.clean(job)
        stage.reconciler.tick(job)
    assert stage.store.list() == []
    kept = stage.store.removed()
    assert "private" not in repr(kept)
    assert report.report(kept, stage.clock.now(), "job") == whole
    for _ in range(2):
        for by, old in zip(report.GROUPS, before, strict=True):
            costs = stage.api.cost(by=by)
            assert costs["total"]["list_micros"] == round(spent * 1e6)
            assert [row["key"] for row in costs["rows"]] == [row["key"] for row in old["rows"]]
        assert stage.api.cost(job=done)["total"]["jobs"] == 1
        assert [job["job"] for job in stage.api.ledger()["jobs"]] == [done, second]
        stage.reconciler = stage.new_backend()
    (usage,) = stage.reconciler.queue.usage().shares.values()
    assert usage > 0
