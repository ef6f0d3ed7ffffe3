"""Steps and loss that were found in the output of a program that reports none: they are shown, and decide nothing."""

import pytest

from tests.support.stage import Stage
from tests.unit.cli.conftest import utc as utc
from tpujob.cli.render.job_page import job_page
from tpujob.domain.model import Cause, State
from tpujob.domain.progress import job_progress
from tpujob.service.views import speed

pytestmark = pytest.mark.usefixtures("utc")


def test_what_is_found_is_shown_with_its_origin(stage: Stage) -> None:
    job = stage.started()
    stage.reports(job, found={"step": 12, "steps": 200, "loss": 2.5})
    stage.step(job)
    view, (row,) = stage.api.get(job), stage.api.list()["rows"]
    assert (view["step"], view["steps"], view["loss"], view.get("found")) == (12, 200, 2.5, True)
    assert (row["step"], row["steps"], row["loss"]) == (12, 200, 2.5)
    page = job_page(view, (), 80, stage.clock.now())
    assert "step 12 of 200  loss 2.5  (found in the" in page
    stage.reports(job, found=None, step=13, loss=2.4)
    stage.step(job)
    view = stage.api.get(job)
    assert (view["step"], view["loss"], view.get("found")) == (13, 2.4, False)


def test_time_left_and_metrics_that_were_found_are_shown_and_no_forecast_uses_them(
    stage: Stage,
) -> None:
    job = stage.started()
    metrics = {"train/lr": 0.001, "bad": "NaN", "steps_per_second": 9.0}
    found = {"step": 50, "steps": 200, "loss": 2.5, "step_s": 2.0, "metrics": metrics}
    stage.reports(job, found=found)
    stage.step(job)
    view, (row,) = stage.api.get(job), stage.api.list()["rows"]
    assert (view.get("steps_per_s"), view.get("left_s"), row["left_s"]) == (0.5, 300.0, 300.0)
    assert view["metrics"] == {**metrics, "bad": None}
    assert "about 5m00s left" in job_page(view, (), 120, stage.clock.now())
    known = stage.job(job)
    assert speed(known, job_progress(known), stage.clock.now()) is None


def test_a_loss_that_was_found_to_be_nan_is_shown_and_changes_nothing(stage: Stage) -> None:
    job = stage.started(recovery={"nonfinite_steps": 1})
    before = stage.kinds(job)
    stage.reports(job, found={"step": 12, "steps": None, "loss": "NaN"})
    stage.step(job)
    shown = stage.api.get(job).get("nonfinite")
    assert shown
    assert shown["text"] == "loss is NaN"
    stage.clock.sleep(60)
    stage.step(job)
    assert (stage.job(job).state, stage.kinds(job)) == (State.RUNNING, before)


def test_the_last_step_that_was_found_does_not_make_a_preempted_program_complete(
    stage: Stage,
) -> None:
    job = stage.started()
    last = {"step": 200, "steps": 200, "loss": 0.5}
    stage.reports(job, found=last, notice="preempted", phase="exited", exit_code=0)
    stage.preempt()
    stage.running(job, 2)
    ended = stage.job(job).attempts[0]
    assert (ended.cause, ended.progress.step) == (Cause.PREEMPTED, None)
    assert stage.api.get(job)["step"] is None, "the newest attempt has found nothing yet"
