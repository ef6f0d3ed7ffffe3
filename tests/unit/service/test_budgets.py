"""Budgets as users meet them: refused with the arithmetic, kept without any bill, raised to go on."""

import math
from typing import Any

import pytest

from tests.support.stage import SPEC, Stage
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.money.ledger import usd
from tpujob.errors import BadRequest, BadSpec, IllegalInState

RATE = 7.372  #: US dollars an hour for a spot v4-16


def spent(stage: Stage, job: Job) -> float:
    return usd(job.slices, stage.clock.now()) or 0.0


def alive(stage: Stage, job_id: str) -> None:
    stage.reports(job_id, idle=1.0, looks=1)


def stopped(stage: Stage, usd: float, *, deletion: float = 90.0) -> Job:
    """A runaway job: nothing but its budget ends it. A deletion takes so many seconds."""
    job_id = stage.started(budget={"usd": usd})
    deleting = stage.until(job_id, State.RELEASING, limit=10_000, also=lambda: alive(stage, job_id))
    stage.clock.sleep(deletion)
    return stage.until(deleting.id, State.FAILED)


@pytest.mark.parametrize("usd", [1.2, 50.0])
def test_a_runaway_job_keeps_its_limit(stage: Stage, usd: float) -> None:
    """Without billing data the job exceeds its limit by one per cent, or one tick of burn, at most."""
    job = stopped(stage, usd)
    assert job.cause is Cause.BUDGET
    assert spent(stage, job) <= usd + max(usd / 100, RATE * 10 / 3600)
    assert spent(stage, job) >= usd - RATE * (60 + 30 + 120) / 3600, "no sooner than need be"
    assert stage.cloud.machines == {}
    kinds = stage.kinds(job.id)
    way_out = ["held", "program_stopped", "release_started", "delete_asked"]
    assert [kind for kind in kinds if kind in way_out] == way_out, "its program is stopped first"
    assert job.attempts[0].cause is Cause.BUDGET
    view = stage.api.get(job.id)
    assert view["next"]["commands"][0]["command"] == f"tpujob resume {job.id} --budget USD"
    assert f"the budget, ${usd:.2f}, is used up: $" in view["message"]
    if usd == 50:  # at four fifths of the other one it is too late already
        assert kinds.count("budget_warned") == 1
        assert kinds.index("budget_warned") < kinds.index("held")


def test_what_is_left_and_until_when_is_shown(stage: Stage) -> None:
    job_id = stage.started(budget={"usd": 50})
    stage.clock.sleep(3600 * 5.6)  # $41.28
    (own,) = stage.api.get(job_id)["spending"]
    assert (own["whose"], own["limit_micros"], own["micros_per_hour"]) == (
        "job",
        50_000_000,
        7_372_000,
    )
    assert (own["warned"], own["used_up"], own["anew_at"]) == (True, False, None)
    assert 41_280_000 <= own["used_micros"] <= 41_310_000
    assert own["reached_at"]
    assert stage.api.list()["rows"][0]["warned"] == [own.get("text")]
    assert own.get("text", "").startswith(
        "$41.30 of $50.00 spent (83%), $7.37/h now: lasts until 1970-01-12 "
    )


def test_a_budget_that_pays_for_no_slice_is_refused(stage: Stage) -> None:
    with pytest.raises(BadSpec, match=r"budget.usd: the budget does not pay .*cost \$1.04"):
        stage.api.plan({**SPEC, "budget": {"usd": 1}})
    with pytest.raises(BadSpec, match=r"\$1.00 left"):
        stage.create(budget={"usd": 1})
    assert stage.api.list()["rows"] == []


def test_a_price_that_nobody_knows_is_refused(stage: Stage) -> None:
    tpu = {"type": "v6e-8", "zones": ["southamerica-west1-a"]}
    stage.api.plan({**SPEC, "tpu": tpu})
    with pytest.raises(BadSpec, match="the price of a spot v6e-8 in southamerica"):
        stage.api.plan({**SPEC, "tpu": tpu, "budget": {"usd": 1000}})


def test_a_job_that_is_estimated_to_cost_more_is_refused_with_the_arithmetic(stage: Stage) -> None:
    """The same program has taken an hour before."""
    job_id = stage.started()
    stage.clock.sleep(3600)
    stage.succeed(job_id)
    message = r"than \$7.00: 1.0\d h of v4-16 in us-central2-b cost \$7.[45]\d \(as 1 earlier run .*\), .* \$0.43"
    for submit in (stage.api.plan, lambda spec: stage.api.create(spec)):
        with pytest.raises(BadSpec, match=message):
            submit({**SPEC, "budget": {"usd": 7}})
    assert stage.create(budget={"usd": 8})
    longer = {**SPEC, "run": {"command": "python3 other.py"}, "budget": {"usd": 7}}
    assert stage.api.create(longer), "nobody knows how long it takes"


# Going on ------------------------------------------------------------------------------------------------------------


def test_a_resume_without_money_is_refused_with_the_arithmetic(stage: Stage) -> None:
    job = stopped(stage, 1.2)
    before = stage.kinds(job.id)
    with pytest.raises(
        IllegalInState, match=r"cannot continue: the budget does not pay for a slice: \$1.0"
    ) as refused:
        stage.api.resume(job.id)
    assert refused.value.hint == f"`tpujob resume {job.id} --budget USD` gives it more."
    with pytest.raises(IllegalInState, match=r"of \$1.50 spent"):
        stage.api.resume(job.id, budget=1.5)
    assert stage.kinds(job.id) == before, "what is refused changes nothing"


def test_more_money_lets_it_go_on(stage: Stage) -> None:
    job = stopped(stage, 1.2)
    view = stage.api.resume(job.id, budget=5)
    assert (view["state"], view["spending"][0]["limit_micros"]) == ("queued", 5_000_000)
    assert stage.kinds(job.id)[-2:] == ["budget_changed", "resume_requested"]
    again = stage.running(job.id, attempt=2)
    assert len(again.slices) == 2
    ended = stage.until(job.id, State.FAILED, limit=10_000)
    assert 4.5 < spent(stage, ended) <= 5.0, "what it spent before counts"


@pytest.mark.parametrize("first", [{"budget": {"usd": 2}}, {}])
def test_a_job_that_runs_can_be_given_a_budget_or_more(stage: Stage, first: dict[str, Any]) -> None:
    job_id = stage.started(**first)
    stage.api.resume(job_id, budget=3)
    stage.api.resume(job_id, budget=3)
    assert stage.kinds(job_id).count("budget_changed") == 1
    ended = stage.until(job_id, State.FAILED, limit=10_000)
    assert 2.0 < spent(stage, ended) <= 3.0


@pytest.mark.parametrize("usd", [0.0, -5.0, math.nan, math.inf])
def test_what_is_no_amount_is_refused(stage: Stage, usd: float) -> None:
    job_id = stage.create()
    with pytest.raises(BadRequest, match=r"the budget must be from 0.01 to 100,000,000 US dollars"):
        stage.api.resume(job_id, budget=usd)


def test_a_job_that_is_done_gets_no_budget(stage: Stage) -> None:
    job_id = stage.started()
    stage.succeed(job_id)
    with pytest.raises(IllegalInState, match="has succeeded"):
        stage.api.resume(job_id, budget=50)
