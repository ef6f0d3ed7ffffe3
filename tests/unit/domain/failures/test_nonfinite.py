"""The source of numbers that are not finite: the maths, or the machine."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, job_in, report
from tpujob.domain import progress
from tpujob.domain.failures import nonfinite
from tpujob.domain.model import (
    Attempt,
    Cause,
    Job,
    NonfiniteLoss,
    Progress,
    State,
    Verdict,
)


def attempt(
    number: int,
    *racks: str,
    step: int | None = None,
    cause: Cause | None = Cause.NONFINITE,
    **fields: object,
) -> Attempt:
    verdict = Verdict(step=step) if cause is Cause.NONFINITE else None
    values = {"cause": cause, "physical": racks, "verdict": verdict, "slice": f"tj-000001-{number}"}
    return Attempt(number=number, started_at=NOW, **{**values, **fields})  # pyright: ignore[reportArgumentType]


def job(*attempts: Attempt) -> Job:
    return replace(job_in(State.RUNNING), attempts=attempts)


def test_evidence_names_every_step_that_was_not_finite() -> None:
    first, second = attempt(1, "a", step=45), attempt(2, "b", step=47)
    text = nonfinite.evidence_text(job(first), Verdict(step=47))
    assert text.startswith("not finite at steps 45, 47 in 2 attempts, and neither")
    text = nonfinite.evidence_text(job(second), Verdict(step=47))
    assert text.startswith("not finite at step 47 in 2 attempts, and neither")


@pytest.mark.parametrize(
    ("step", "machines", "reason"),
    [
        (40, ("c", "d"), " at step 40, as in attempt 1 on other hardware"),
        (40, ("b", "c"), ""),
        (41, ("c", "d"), ""),
    ],
    ids=["other hardware", "partly the same hardware", "another step"],
)
def test_the_same_step_proves_the_maths(step: int, machines: tuple[str, ...], reason: str) -> None:
    running = job(attempt(1, "a", "b", step=40), attempt(2, cause=None))
    why = nonfinite.is_maths(running, Verdict(step=step), machines)
    assert reason in why
    assert bool(why) == bool(reason)


def test_where_machines_are_not_known_another_slice_counts_as_other_hardware() -> None:
    now = job(attempt(1, step=40), attempt(2, cause=None))
    assert nonfinite.is_maths(now, Verdict(step=40), ())
    for machines in ((), ("a",)):
        again = job(attempt(1, *machines, step=40), attempt(2, cause=None, slice="tj-000001-1"))
        assert nonfinite.is_maths(again, Verdict(step=40), ()) == "", "the same slice"


def test_a_program_that_says_nothing_of_its_numbers_fails_alike_anywhere() -> None:
    now = job(attempt(1, "a", verdict=None), attempt(2, cause=None))
    assert "it was not finite, as in attempt 1 on other hardware" in nonfinite.is_maths(
        now, None, ("b",)
    )
    assert nonfinite.is_maths(now, Verdict(step=40), ("b",)) == "", "this one says where"


def test_a_replay_that_blames_model_or_data_ends_it_at_once() -> None:
    now = job(attempt(1, cause=None))
    assert "blames the data" in nonfinite.is_maths(now, Verdict(step=3, blame="data"), ("a",))


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([(9, 1.0, None), (9, None, None)], "None"),
        ([(9, None, 7), (9, None, 6)], "loss is NaN since step 6"),
        ([(9, None, 7), (6, 1.0, None)], "loss is NaN since step 7"),
        ([(9, None, 7), (7, 1.0, None)], "loss is NaN since step 7 on host 0"),
        ([(9, None, None), (9, None, 7)], "loss is NaN since step 7"),
        ([(9, None, 0), (9, None, 8)], "loss is NaN since step 0"),
    ],
    ids=[
        "finite or unknown",
        "both",
        "not that far yet",
        "differs",
        "one reports no loss",
        "step 0",
    ],
)
def test_the_earliest_bad_loss_of_any_host_counts(
    hosts: list[tuple[int, float | None, int | None]], text: str
) -> None:
    reports = [
        report(
            n,
            progress=Progress(
                step=step,
                loss=loss,
                nonfinite=None if since is None else NonfiniteLoss("NaN", since),
            ),
        )
        for n, (step, loss, since) in enumerate(hosts)
    ]
    assert str(nonfinite.reported_loss(reports)) == text


def test_what_a_bad_loss_leaves_in_words() -> None:
    loss = NonfiniteLoss("NaN", 60)
    assert nonfinite.not_kept(loss, 99, 50) == (
        "steps 60 to 99 are not kept, as the loss is NaN; the newest good checkpoint is step 50"
    )
    assert nonfinite.not_kept(NonfiniteLoss("not finite"), 99, None) == (
        "later steps are not kept, as the loss is not finite; no checkpoint from before that is known"
    )


@pytest.mark.parametrize(
    ("losses", "bounds"),
    [
        ([(0, 60, 50)], [60]),
        ([(0, 60, 50), (50, None, 75)], [60, 0]),
        ([(0, 60, 50), (50, 100, 75)], [60, 100]),
        ([(0, 60, 50), (50, 55, None)], [60, 55]),
        ([(0, 0, None)], [1]),
    ],
    ids=["from before it", "past it", "again later", "again earlier", "from the first step on"],
)
def test_an_attempt_resumes_before_the_first_bad_loss_of_the_one_before(
    losses: list[tuple[int, int | None, int | None]], bounds: list[int]
) -> None:
    attempts: list[Attempt] = []
    for number, (began, since, saved) in enumerate(losses, 1):
        bad = None if since is None else NonfiniteLoss("NaN", since)
        done = Progress(step=200, resumed_from=began, checkpoint=saved, nonfinite=bad)
        past = attempt(number, cause=Cause.PREEMPTED, progress=done)
        bound = progress.resume_before(job(*attempts)) if attempts else 0
        attempts.append(replace(past, resume_before=bound))
        assert progress.resume_before(job(*attempts)) == bounds[number - 1]
