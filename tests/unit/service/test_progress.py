"""The progress of a job in its view, after stories of several attempts."""

from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.api import JobView
from tpujob.cli.render import words
from tpujob.domain.model import State
from tpujob.domain.progress import job_progress


def tell(stage: Stage, job: str, **facts: Any) -> None:
    """Both hosts report these facts, and the backend reads them."""
    stage.reports(job, **facts)
    stage.step(job)


def crash(stage: Stage, job: str, **facts: Any) -> None:
    stage.reports(job, phase="exited", exit_code=1, **facts)


def not_finite(stage: Stage, job: str, at: int | None, **facts: Any) -> None:
    """A line of the program's output says NaN at step `at`, and its agents stop it."""
    verdict = {"step": at, "host": None, "device": "", "blame": "", "text": "loss is nan"}
    for host in range(2):
        stage.report(
            job, host, phase="exited", exit_code=None, error="loss is nan", cause="NONFINITE",
            verdict=verdict, **facts,
        )  # fmt: skip


def resume_of(view: JobView) -> str:
    """Return what the page and the terminal say of a resume."""
    (action,) = [action["does"] for action in view["actions"] if action["name"] == "resume"]
    (command,) = view["next"]["commands"]
    assert command["does"] in action, "the button and the sentence name the same checkpoint"
    return command["does"]


def test_a_crash_leaves_the_checkpoint_of_before(stage: Stage) -> None:
    job = stage.started(recovery={"failures": 1})
    tell(stage, job, step=3, first_step=1)
    crash(stage, job, step=30, first_step=1, checkpoint=25)
    stage.running(job, 2)
    crash(stage, job, step=30, first_step=26)  # before the backend has seen a step of it
    stage.until(job, State.FAILED)

    view = stage.api.get(job)
    assert view["checkpoint"] == 25
    assert resume_of(view) == "resumes from checkpoint 25"
    first, second = view["attempts"]
    assert (first["checkpoint"], second["checkpoint"]) == (25, None)
    assert (first["redone"], second["redone"]) == (5, 5)
    (row,) = stage.api.list()["rows"]
    assert row["checkpoint"] == 25
    goodput = stage.api.cost(job=job)["total"]["goodput"]
    assert goodput, "25 of the steps of attempt 1 count"


def test_a_resume_stays_before_the_first_number_that_was_not_finite(stage: Stage) -> None:
    """The program saves when it is stopped, and goes on from there whatever it is told."""
    job = stage.started(recovery={"nonfinite": 2})
    tell(stage, job, step=10, first_step=1, checkpoint=40)
    not_finite(stage, job, 45, step=46, first_step=1, checkpoint=46)
    for number, step in ((2, 47), (3, 49)):
        stage.running(job, number)
        not_finite(stage, job, step, step=step + 1, first_step=step, checkpoint=step + 1)
    stage.until(job, State.FAILED)

    assert [a.resume_before for a in stage.job(job).attempts] == [0, 45, 45]
    view = stage.api.get(job)
    assert view["checkpoint"] is None, "46, 48 and 50 may hold wrong numbers"
    assert resume_of(view) == "resumes from a checkpoint before step 45, if there is one"


def test_a_checkpoint_may_hold_bad_numbers_where_no_step_of_them_is_known(stage: Stage) -> None:
    """Neither the line that `watch.nonfinite` matches nor anything else names a step."""
    job = stage.started(recovery={"nonfinite": 1})
    not_finite(stage, job, None, checkpoint=46)
    stage.running(job, 2)
    doubt = ", which may hold bad numbers: the step at which they began is not known"
    stage.api.cancel(job, release=True)
    stage.until(job, State.CANCELLED)
    assert resume_of(stage.api.get(job)) == f"resumes from checkpoint 46{doubt}"

    stage.api.resume(job)
    stage.running(job, 3)
    tell(stage, job, checkpoint=52)
    crash(stage, job, checkpoint=52)
    stage.running(job, 4)
    stage.api.cancel(job, release=True)
    stage.until(job, State.CANCELLED)
    assert resume_of(stage.api.get(job)) == "resumes from checkpoint 52"


@pytest.mark.parametrize(
    ("loss", "checkpoint", "before"), [(None, 40, 45), (2.5, 48, 0)], ids=["no loss", "finite loss"]
)
def test_what_an_attempt_saves_that_began_after_a_bad_step_is_good_once_it_shows_a_finite_loss(
    stage: Stage, loss: float | None, checkpoint: int, before: int
) -> None:
    """The program ignores the bound, and is cancelled before it meets another number that is not finite."""
    job = stage.started(recovery={"nonfinite": 2})
    tell(stage, job, step=40, first_step=1, checkpoint=40)
    not_finite(stage, job, 45, step=46, first_step=1, checkpoint=40)
    stage.running(job, 2)
    tell(stage, job, step=48, loss=loss, first_step=47, checkpoint=48)
    stage.api.cancel(job, release=True)
    stage.until(job, State.CANCELLED)

    view = stage.api.get(job)
    assert (view["checkpoint"], view["attempts"][1]["first_step"]) == (checkpoint, 47)
    assert job_progress(stage.job(job)).resume_before == before


def test_a_resume_names_the_newest_checkpoint_known_before_that_step(stage: Stage) -> None:
    job = stage.started(recovery={"nonfinite": 1})
    tell(stage, job, step=46, first_step=1, checkpoint=46)
    not_finite(stage, job, 45, step=46, first_step=1, checkpoint=46)
    stage.running(job, 2)
    tell(stage, job, step=42, resumed_from=40)
    not_finite(stage, job, 45, step=45, resumed_from=40, first_step=41)
    stage.until(job, State.FAILED)

    view = stage.api.get(job)
    assert view["checkpoint"] == 40
    assert resume_of(view) == "resumes from checkpoint 40, the newest before step 45"


@pytest.mark.parametrize(
    ("facts", "checkpoint"),
    [({"resumed_from": 100}, 100), ({"first_step": 1}, None), ({}, 200)],
    ids=["went further back", "began from the start", "says nothing"],
)
def test_a_checkpoint_that_a_later_attempt_did_not_use_is_not_promised(
    stage: Stage, facts: dict[str, Any], checkpoint: int | None
) -> None:
    job = stage.started()
    tell(stage, job, step=200, first_step=1, checkpoint=200)
    stage.cloud.preempt(stage.job(job).slices[-1].name)
    stage.running(job, 2)
    tell(stage, job, step=201, **facts)
    assert stage.api.get(job)["checkpoint"] == checkpoint


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        ({"first_step": 26, "resumed_from": 25}, 26),
        ({"resumed_from": 25}, 26),
        ({"first_step": 1}, 1),
        ({"resumed_from": 0}, 1),
        ({}, 30),
    ],
    ids=["both", "where it resumed", "its first step", "the beginning", "what was seen first"],
)
def test_the_first_step_of_an_attempt(stage: Stage, facts: dict[str, Any], first: int) -> None:
    """And not the last that it found done; page and terminal show it alone."""
    job = stage.started()
    assert stage.api.get(job)["attempts"][0]["first_step"] is None
    tell(stage, job, step=30, **facts)
    (attempt,) = stage.api.get(job)["attempts"]
    assert attempt["first_step"] == first
    assert words.steps_of(attempt) == f", step {first} to 30"


def test_an_attempt_that_ends_without_a_step_does_not_hide_how_far_the_job_is(stage: Stage) -> None:
    job = stage.started(recovery={"failures": 1})
    tell(stage, job, step=30, steps=100, loss=2.5, first_step=1)
    crash(stage, job, step=30, steps=100, loss=2.5, first_step=1)
    stage.running(job, 2)
    assert stage.api.get(job)["step"] is None, "it has not made one yet"
    crash(stage, job)
    stage.until(job, State.FAILED)
    view = stage.api.get(job)
    assert (view["step"], view["steps"], view["loss"]) == (30, 100, 2.5)


def test_the_checkpoint_before_a_bad_step_is_kept_beside_a_later_one(stage: Stage) -> None:
    job = stage.started(recovery={"nonfinite": 0})
    tell(stage, job, step=3, first_step=1)
    verdict = {"step": 28, "host": 1, "device": "", "blame": "model", "text": "maths"}
    stage.report(job, 0, phase="exited", exit_code=76, step=31, first_step=1, checkpoint=30)
    stage.report(
        job, 1, phase="exited", exit_code=65, step=31, first_step=1, checkpoint=25, verdict=verdict
    )
    stage.until(job, State.FAILED)

    view = stage.api.get(job)
    assert view["checkpoint"] == 25
    assert resume_of(view) == "resumes from checkpoint 25, the newest before step 28"
