"""The curves of a job: over its attempts, with what was lost marked, and after its slices are gone."""

import pytest

from tests.support.stage import Stage
from tpujob.agent.upload.progress import Series
from tpujob.api import CurveView
from tpujob.domain.model import State
from tpujob.errors import NotFound
from tpujob.service import curves
from tpujob.service.curves import POINTS, RUNNING_TTL


def tell(stage: Stage, job_id: str, first: int, last: int, **report: object) -> None:
    """The program of the newest attempt makes these steps, ten a second."""
    series = Series()
    for step in range(first, last + 1):
        series.step(step, 5000 + step / 10, {"loss": 1 / step, "ms": 100.0})
    stage.report(job_id, 0, step=last, **report)
    stage.draw(job_id, series.line())


def preempt(stage: Stage, job_id: str) -> None:
    stage.cloud.preempt(stage.job(job_id).slices[-1].name)


def curve(stage: Stage, job_id: str, name: str = "loss") -> list[CurveView]:
    (chart,) = [c for c in stage.api.metrics(job_id)["charts"] if c["name"] == name]
    return chart["curves"]


def test_a_sweep_refers_to_the_curves_of_its_jobs(stage: Stage) -> None:
    sweep = stage.create(name="sweep", array=3)
    assert "tpujob show sweep-0 --plot" in stage.api.metrics(sweep)["why"]


def test_steps_that_were_made_again_are_marked_and_all_is_readable_afterwards(stage: Stage) -> None:
    job = stage.create()
    assert stage.api.metrics(job)["why"] == curves.NO_ATTEMPT
    stage.running(job)
    assert stage.api.metrics(job)["why"] == curves.NO_STEPS
    stage.clock.sleep(RUNNING_TTL)
    tell(stage, job, 1, 100, checkpoint=80)
    stage.step(job)
    assert curve(stage, job)[0]["kept"] is None, "nothing is lost yet"
    preempt(stage, job)
    stage.running(job, 2)
    tell(stage, job, 81, 150, resumed_from=80, checkpoint=150, phase="exited", exit_code=0)
    stage.report(job, 1, phase="exited", exit_code=0)
    stage.until(job, State.SUCCEEDED)
    assert not stage.cloud.machines, "the slices are gone"
    stage.clock.sleep(RUNNING_TTL)
    first, second = curve(stage, job)
    assert (first["attempt"], first["kept"], first["points"][-1][0]) == (1, 80, 100)
    assert (second["attempt"], second["kept"], second["resumed_from"]) == (2, None, 80)
    assert second["points"][0][:2] == (81, 0.0)
    assert [p[4] for p in curve(stage, job, "steps/s")[0]["points"]] == pytest.approx([10.0] * 19)
    assert [c["name"] for c in stage.api.metrics(job)["charts"]] == ["loss", "steps/s", "ms"]
    assert [c["attempt"] for c in stage.api.metrics(job, attempt=1)["charts"][0]["curves"]] == [1]
    with pytest.raises(NotFound, match="no attempt 3"):
        stage.api.metrics(job, attempt=3)


def test_a_bucket_that_does_not_answer_is_said_and_asked_again(stage: Stage) -> None:
    job = stage.started()
    tell(stage, job, 1, 10)
    stage.faults.broken.add("get")
    metrics = stage.api.metrics(job)
    assert (metrics["charts"], metrics["unread"]) == ([], [1])
    assert "they cannot be read from the bucket" in metrics["why"]
    stage.faults.broken.clear()
    assert len(curve(stage, job)[0]["points"]) == 10


def test_what_has_been_read_is_not_read_again_at_every_look(stage: Stage) -> None:
    job = stage.started()
    tell(stage, job, 1, 10)
    api, before = stage.api, stage.bucket.gets
    for _ in range(5):
        api.metrics(job)
    assert stage.bucket.gets == before + 1
    tell(stage, job, 1, 20)
    stage.clock.sleep(RUNNING_TTL)
    assert api.metrics(job)["charts"][0]["curves"][0]["points"][-1][0] == 20


def test_an_answer_has_no_more_points_than_a_screen_can_show(stage: Stage) -> None:
    job = stage.create()
    for attempt in range(1, 9):
        stage.running(job, attempt)
        tell(stage, job, 1, 4000)
        stage.step(job)
        preempt(stage, job)
    stage.running(job, 9)
    stage.clock.sleep(RUNNING_TTL)
    curves = curve(stage, job)
    assert sum(len(c["points"]) for c in curves) <= POINTS
    assert all(c["points"][-1][0] == 4000 for c in curves)
