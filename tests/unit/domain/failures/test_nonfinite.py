"""The source of numbers that are not finite: the maths, or the machine."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, job_in
from tpujob.domain.failures import nonfinite
from tpujob.domain.model import Attempt, Cause, Job, State, Verdict


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
