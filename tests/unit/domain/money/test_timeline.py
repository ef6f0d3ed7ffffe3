"""Timelines of jobs: without gaps, with causes, and with costs that add up to what was spent."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import a_job
from tests.unit.domain.money.test_goodput import LOST, attempt, slice_of
from tpujob.domain.copies import Copy
from tpujob.domain.model import Cause, Job, Progress, Slice, SliceRole, State
from tpujob.domain.money.goodput import timeline
from tpujob.domain.money.ledger import US, usd

GONE: dict[str, Any] = LOST | {"message": "gone"}


def refused(k: int, at: float, cause: Cause = Cause.STOCKOUT) -> Slice:
    return slice_of(k, at, None, at + 5, refused=cause, delete_reason=f"refused {k}")


def preempted(**fields: Any) -> Job:
    """Preempted at 1000 with 20 of 100 steps unsaved, refused twice, and running again since 1500."""
    return replace(
        a_job(),
        state=State.RUNNING,
        slices=(
            slice_of(1, 0, 100, 1050),
            refused(2, 1100),
            refused(3, 1200, Cause.QUOTA),
            slice_of(4, 1300, 1400, None),
        ),
        attempts=(
            attempt(1, 1, 100, 200, 1000, step=100, checkpoint=80, first_step_at=200.0, **GONE),
            attempt(2, 4, 1400, 1500, None, step=90, resumed_from=80),
        ),
        **fields,
    )


def rows(job: Job, now: float = 1600.0) -> list[tuple[str, float, float, str, int | None]]:
    return [
        (
            str(stretch.kind),
            stretch.start / US,
            stretch.end / US,
            stretch.cause or "",
            stretch.attempt.number if stretch.attempt else None,
        )
        for stretch in timeline(job, now)
    ]


def test_a_preemption_and_what_followed() -> None:
    assert rows(preempted()) == [
        ("provisioning", 0, 100, "", None),
        ("preparing", 100, 200, "", 1),
        ("productive", 200, 840, "", 1),
        ("redone", 840, 1000, "PREEMPTED", 1),
        ("releasing", 1000, 1050, "PREEMPTED", 1),
        ("waiting", 1050, 1300, "QUOTA", None),
        ("provisioning", 1300, 1400, "", None),
        ("preparing", 1400, 1500, "", 2),
        ("productive", 1500, 1600, "", 2),
    ]
    wait = timeline(preempted(), 1600.0)[5]
    assert (wait.requests, wait.text) == (2, "refused 3")
    assert [stretch.open for stretch in timeline(preempted(), 1600.0)] == [False] * 8 + [True]


def test_its_money_is_what_the_job_has_spent_to_the_micro_dollar() -> None:
    job = preempted()
    for now in (1600.0, 1234567.891):
        cost = [stretch.micros for stretch in timeline(job, now)]
        assert sum(micros or 0 for micros in cost) == round((usd(job.slices, now) or 0) * US)
    unpriced = replace(job, slices=(replace(job.slices[0], usd_per_hour=None), *job.slices[1:]))
    assert timeline(unpriced, 1600.0)[1].micros is None
    free = replace(
        job, slices=(replace(slice_of(1, 0, 950, 1050), preempted_at=1000.0), *job.slices[1:])
    )
    assert all(
        stretch.micros == 0 for stretch in timeline(free, 1600.0) if stretch.slice is free.slices[0]
    )


def test_a_wait_without_a_refusal_has_the_cause_of_what_was_lost() -> None:
    job = preempted()
    plain = replace(job, slices=(job.slices[0], job.slices[3]))
    assert rows(plain)[5] == ("waiting", 1050, 1300, "PREEMPTED", None)


def test_the_time_in_which_data_was_copied_is_no_plain_wait() -> None:
    copy = Copy("c", "data", "gs://a", "gs://b", "us-east5", 1100, 0, 0, done_at=1150)
    job = preempted(copies=(copy,))
    kinds = [(kind, start, end) for kind, start, end, *_ in rows(job)]
    assert kinds[5:8] == [("waiting", 1050, 1100), ("copying", 1100, 1150), ("waiting", 1150, 1300)]


def test_newer_progress_of_the_program_replaces_that_of_the_record() -> None:
    job = preempted()
    young = replace(job, attempts=(job.attempts[0], attempt(2, 4, 1400, 1500, None)))
    assert rows(young)[-1][0] == "unknown"
    last = timeline(young, 1600.0, Progress(step=90, resumed_from=80, phase="train"))[-1]
    assert last.kind == "productive"


def test_a_slice_that_was_swapped_out_is_shown_beside_its_replacement() -> None:
    bad = slice_of(
        1, 0, 100, 700, role=SliceRole.CONDEMNED, condemned_at=500.0, delete_reason="wrong numbers"
    )
    job = replace(
        preempted(),
        slices=(bad, slice_of(2, 520, 600, None)),
        attempts=(attempt(1, 1, 100, 200, 500, **GONE), attempt(2, 2, 600, 650, None)),
    )
    kinds = {(kind, start, end) for kind, start, end, *_ in rows(job)}
    assert ("condemned", 500, 700) in kinds
    assert ("provisioning", 520, 600) in kinds


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
def test_nothing_of_a_job_that_has_ended_goes_on(state: State) -> None:
    done = replace(preempted(), state=state, finished_at=1600.0)
    ended = replace(
        done,
        slices=(*done.slices[:3], replace(done.slices[3], gone_at=1600.0)),
        attempts=(done.attempts[0], replace(done.attempts[1], ended_at=1590.0)),
    )
    stretches = timeline(ended, 1600.0)
    assert not any(stretch.open for stretch in stretches)
    assert stretches[-1].kind == "releasing"
