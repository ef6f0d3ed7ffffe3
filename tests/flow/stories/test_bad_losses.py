"""A program goes on although its loss is not finite: what users read, and what still counts."""

from typing import Any

import pytest

from tests.support.golden import golden
from tests.support.stage import Stage
from tests.unit.cli.conftest import utc as utc
from tpujob.cli.render.job_page import job_page, why_page
from tpujob.cli.render.listing import job_table
from tpujob.domain.events import EventKind
from tpujob.domain.model import Cause, State
from tpujob.domain.notifications.rules import read_events

pytestmark = pytest.mark.usefixtures("utc")

NAN = {"loss": "NaN", "since": 60}
GOOD = {"step": 59, "steps": 5000, "loss": 3.729, "first_step": 1, "checkpoint": 50}


def tell(stage: Stage, job: str, **facts: Any) -> None:
    """Both hosts report these facts, and the backend reads them."""
    stage.reports(job, **facts)
    stage.step(job)


def kill(stage: Stage, job: str, **facts: Any) -> None:
    """The agent of host 0 ends the program, as it has reported enough such losses; host 1 runs on."""
    text = "the loss is NaN since step 60, in 20 reported steps"
    verdict = {"step": 60, "host": 0, "device": "", "blame": "", "text": text}
    cause = {"cause": "NONFINITE", "error": text, "verdict": verdict, "exit_code": -9}
    stage.report(job, 0, phase="exited", nonfinite=NAN, **cause, **facts)


def pages(stage: Stage, job: str) -> str:
    """Return the row of the list, `show` and `why` as a user reads them, and all events."""
    now, view, events = stage.clock.now(), stage.api.get(job), stage.api.events(job)
    rows = job_table(stage.api.list()["rows"], 80, now)
    texts = [f"  {event['kind']}: {event['text']}" for event in events]
    shown = job_page(view, (), 80, now).partition("\n\nSlices")[0]
    return "\n".join([rows, "", shown, "", why_page(view, (), 80, now), "", *texts])


def notified(stage: Stage, job: str) -> list[tuple[str, str]]:
    """Return kind and text of what is reported, each once."""
    facts = read_events(stage.job(job), stage.store.events(job), 0)
    return [(fact.kind.value, fact.text) for fact in {fact.key: fact for fact in facts}.values()]


def goodput(stage: Stage, job: str) -> dict[str, float]:
    return {part["part"]: part["chip_hours"] for part in stage.api.cost(job=job)["total"]["parts"]}


def test_a_bad_loss_is_shown_until_it_is_finite_again(stage: Stage) -> None:
    job = stage.started()
    tell(stage, job, **GOOD)
    assert stage.api.get(job)["nonfinite"] is None
    tell(stage, job, step=80, loss=None, nonfinite=NAN)
    view, (row,) = stage.api.get(job), stage.api.list()["rows"]
    assert view["nonfinite"] == {
        "loss": "NaN", "since": 60, "host": None, "text": "loss is NaN since step 60",
    }  # fmt: skip
    assert (row["nonfinite"], row["warned"]) == (view["nonfinite"], ["loss is NaN since step 60"])
    assert (view["loss"], view["checkpoint"]) == (None, 50)
    shown = {"NaN since step 60": pages(stage, job)}
    tell(stage, job, step=99, loss=2.5, nonfinite=None, checkpoint=75)
    view, (row,) = stage.api.get(job), stage.api.list()["rows"]
    assert (view["nonfinite"], view["checkpoint"], row["warned"]) == (None, 75, [])
    tell(stage, job, step=120, loss=None, nonfinite={"loss": "inf", "since": 110})
    tell(stage, job, step=130, loss=2.5, nonfinite=None)
    assert stage.kinds(job).count("loss_finite") == 0, "a loss that comes and goes fills no history"
    stage.clock.sleep(601)
    tell(stage, job, step=140)
    assert stage.kinds(job)[-1] == EventKind.LOSS_FINITE
    golden("nonfinite-running", {**shown, "finite again": pages(stage, job)})
    kinds = [kind for kind, _ in notified(stage, job)]
    assert kinds == ["nonfinite"], "once in an attempt"


def test_a_preemption_is_not_blamed_for_steps_with_a_bad_loss(stage: Stage) -> None:
    job = stage.started(recovery={"nonfinite_steps": 0})
    tell(stage, job, **GOOD)
    stage.clock.sleep(300)
    tell(stage, job, step=3882, loss=None, nonfinite=NAN)
    stage.reports(job, notice="preempted", phase="exited", exit_code=75)
    stage.preempt()
    stage.running(job, 2)
    attempt = stage.job(job).attempts[1]
    assert attempt.resume_before == 60, "a program that saves to the bucket itself does not use 75"
    shown = {"preempted": pages(stage, job)}
    tell(
        stage,
        job,
        step=55,
        loss=3.8,
        nonfinite=None,
        resumed_from=50,
        first_step=51,
        checkpoint=None,
    )
    event = stage.store.events(job)[-1]
    assert event.text == "first step seen: 55; 9 steps of earlier attempts are repeated"
    assert stage.api.get(job)["attempts"][0]["redone"] == 9
    parts = goodput(stage, job)
    assert parts["nonfinite"] > 10 * parts["productive"]
    golden("nonfinite-preempted", {**shown, "past it": pages(stage, job)})


def test_twice_at_the_same_step_it_is_the_model_or_the_data(stage: Stage) -> None:
    """The second machine is no better: the first one is not accused, although steps followed on the second."""
    job = stage.started(recovery={"nonfinite": 2})
    tell(stage, job, **GOOD)
    kill(stage, job, step=80, loss=None)
    stage.running(job, 2)
    tell(
        stage, job, step=75, loss=None, nonfinite=NAN, resumed_from=50, first_step=51, checkpoint=50
    )
    kill(stage, job, step=80)
    failed = stage.until(job, State.FAILED)
    assert [a.cause for a in failed.attempts] == [Cause.NONFINITE, Cause.NONFINITE]
    assert stage.reconciler.ports.reputation.suspects() == []
    golden("nonfinite-failed", pages(stage, job))
    kinds = [kind for kind, _ in notified(stage, job)]
    assert kinds == ["nonfinite", "nonfinite", "failed"], "once in each attempt, then the end"


def test_a_success_with_a_bad_loss_says_so_and_names_the_good_checkpoint(stage: Stage) -> None:
    job = stage.started()
    tell(stage, job, **GOOD)
    stage.reports(job, step=400, steps=400, loss=None, nonfinite=NAN)
    stage.succeed(job)
    view = stage.api.get(job)
    assert (view["state"], view["checkpoint"], view["loss"]) == ("succeeded", 50, None)
    assert "nonfinite" in goodput(stage, job)
    golden("nonfinite-succeeded", pages(stage, job))
    ((_, text),) = [fact for fact in notified(stage, job) if fact[0] == "succeeded"]
    assert text.endswith("but the loss is NaN since step 60; the newest good checkpoint is step 50")


def test_a_host_is_named_where_the_loss_of_another_host_is_finite(stage: Stage) -> None:
    job = stage.started()
    tell(stage, job, **GOOD)
    stage.report(job, 1, step=66, loss=None, nonfinite={"loss": "-inf", "since": 61})
    stage.step(job)
    assert stage.api.list()["rows"][0]["warned"] == ["loss is -inf since step 61"]
    stage.report(job, 0, step=64, loss=3.7, checkpoint=64)
    stage.step(job)
    assert stage.api.list()["rows"][0]["warned"] == ["loss is -inf since step 61 on host 1"]
    assert stage.api.get(job)["checkpoint"] == 50, "64 is of a state that host 1 does not share"
