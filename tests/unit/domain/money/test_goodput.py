"""The parts of a job's time, against figures by hand; the parts of any history add up to the whole."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.money import assert_adds_up
from tests.support.records import ENDPOINTS, NOW, a_job, job_in
from tests.support.records import report as report_of
from tpujob.domain.decide import decide
from tpujob.domain.decide.active import PROGRESS_EVERY
from tpujob.domain.events import EventKind
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import (
    Attempt,
    Cause,
    IdlePeriod,
    Job,
    NonfiniteLoss,
    Outcome,
    Progress,
    Slice,
    SliceRole,
    State,
)
from tpujob.domain.money.goodput import TimePart, spans
from tpujob.domain.money.ledger import US
from tpujob.domain.money.report import GROUPS, Group, report
from tpujob.domain.observations import HostReport, Observation, Present, SliceState
from tpujob.domain.progress import began_from

HOUR, CHIPS = 3600.0, 8
BARE = a_job().slices[0]


def slice_of(
    k: int, requested: float, ready: float | None, gone: float | None, **fields: Any
) -> Slice:
    return replace(
        BARE, name=f"s{k}", k=k, usd_per_hour=8.0, endpoints=(), requested_at=requested,
        ready_at=ready, gone_at=gone, **fields,
    )  # fmt: skip


#: the fields of Progress; `first_step` goes to the attempt, which has it as the backend saw it
_OF_PROGRESS = {*Progress.__slots__} - {"first_step"}


def attempt(n: int, k: int, start: float, run: float, end: float | None, **fields: Any) -> Attempt:
    progress = Progress(**{key: fields.pop(key) for key in [*fields] if key in _OF_PROGRESS})
    return Attempt(n, f"s{k}", start, run, end, progress=progress, **fields)


LOST: dict[str, Any] = {"outcome": Outcome.INTERRUPTED, "cause": Cause.PREEMPTED}
DONE: dict[str, Any] = {"outcome": Outcome.SUCCEEDED}


def job_of(slices: list[Slice], attempts: list[Attempt], end: float, **fields: Any) -> Job:
    return replace(
        a_job(), state=State.SUCCEEDED, finished_at=end,
        slices=tuple(slices), attempts=tuple(attempts), **fields,
    )  # fmt: skip


def seconds(job: Job, now: float = 1e6) -> dict[TimePart, float]:
    parts = dict.fromkeys(TimePart, 0.0)
    for span in spans(job, now):
        parts[span.part] += (span.end - span.start) / US
    return {part: time for part, time in parts.items() if time}


def good(job: Job) -> float:
    share = report([job], 1e6, "job").total.goodput
    assert share is not None
    return 100 * share


def test_steps_with_a_bad_loss_are_no_productive_ones() -> None:
    """100 steps in 1,000 s, from step 61 on with NaN; a later attempt resumes from 50 and does without."""
    bad = NonfiniteLoss("NaN", since=61)
    lost = attempt(1, 1, 0, 0, 1000, step=100, checkpoint=50, nonfinite=bad, **LOST)
    one = job_of([slice_of(1, 0, 0, 1000)], [lost], 1000)
    expected = {TimePart.PRODUCTIVE: 500.0, TimePart.REDONE: 100.0, TimePart.NONFINITE: 400.0}
    assert seconds(one) == expected
    again = attempt(2, 2, 1000, 1000, 2000, step=150, resumed_from=50, first_step=51, **DONE)
    both = job_of([slice_of(1, 0, 0, 1000), slice_of(2, 1000, 1000, 2000)], [lost, again], 2000)
    assert seconds(both) == {**expected, TimePart.PRODUCTIVE: 1500.0}
    done = attempt(1, 1, 0, 0, 1000, step=100, nonfinite=bad, **DONE)
    success = job_of([slice_of(1, 0, 0, 1000)], [done], 1000)
    assert seconds(success) == {TimePart.PRODUCTIVE: 600.0, TimePart.NONFINITE: 400.0}
    from_the_first = replace(
        done, progress=replace(done.progress, nonfinite=NonfiniteLoss("NaN", 1))
    )
    all_bad = job_of([slice_of(1, 0, 0, 1000)], [from_the_first], 1000)
    assert seconds(all_bad) == {TimePart.NONFINITE: 1000.0}


def test_an_hour_of_waiting_for_the_cloud_is_beside_the_goodput() -> None:
    """Of the second slice 300 of 330 s are productive, and all of the first."""
    job = job_of(
        [slice_of(1, 0, 30, 330), slice_of(2, 330, 3930, 4260)],
        [
            attempt(1, 1, 30, 30, 330, step=100, checkpoint=100, **LOST),
            attempt(2, 2, 3930, 3930, 4230, step=200, resumed_from=100, checkpoint=200, **DONE),
        ],
        4260,
    )
    assert good(job) == pytest.approx(600 / 630 * 100, abs=0.1)
    assert report([job], 1e6, "job").total.waited == 8 * (30 + 3600) * US


def test_steps_that_are_made_again_are_lost_once() -> None:
    job = job_of(
        [slice_of(1, 0, 0, 1000), slice_of(2, 1000, 1000, 2000)],
        [
            attempt(1, 1, 0, 0, 1000, step=100, checkpoint=80, **LOST),
            attempt(2, 2, 1000, 1000, 2000, step=180, resumed_from=80, **DONE),
        ],
        2000,
    )
    assert seconds(job) == {TimePart.PRODUCTIVE: 1800, TimePart.REDONE: 200}
    assert good(job) == pytest.approx(90.0)


def test_a_later_attempt_that_goes_further_back_takes_from_every_earlier_one() -> None:
    job = job_of(
        [slice_of(1, 0, 0, 4000)],
        [
            attempt(1, 1, 0, 0, 1000, step=100, checkpoint=100, **LOST),
            attempt(2, 1, 1000, 1000, 2000, step=200, resumed_from=100, checkpoint=200, **LOST),
            attempt(3, 1, 2000, 2000, 4000, step=250, resumed_from=50, **DONE),
        ],
        4000,
    )
    assert seconds(job) == {TimePart.PRODUCTIVE: 2500, TimePart.REDONE: 1500}


def test_each_phase_of_a_life_has_its_part() -> None:
    job = job_of(
        [slice_of(1, 100, 200, 1100, delete_asked_at=1050)],
        [
            attempt(
                1,
                1,
                200,
                260,
                1000,
                step=23,
                resumed_from=0,
                first_step_at=400,
                first_step=3,
                **DONE,
            )
        ],
        1100,
    )
    assert seconds(job) == {
        TimePart.WAITING: 100, TimePart.PROVISIONING: 100, TimePart.PREPARING: 60, TimePart.COMPILING: 50,
        TimePart.PRODUCTIVE: 690, TimePart.RELEASING: 100,
    }, "three steps of 30 s were made when the third one was seen"  # fmt: skip
    assert good(job) == pytest.approx(690 / 900 * 100)
    assert report([job], 1e6, "job").total.waited == 8 * 100 * US, "from its request"


def test_steps_that_were_made_before_one_was_seen_are_no_compiling() -> None:
    job = job_of(
        [slice_of(1, 0, 0, 15)],
        [attempt(1, 1, 0, 0, 15, step=15, resumed_from=0, first_step_at=6, first_step=5, **DONE)],
        15,
    )
    assert seconds(job) == {TimePart.COMPILING: 1.5, TimePart.PRODUCTIVE: 13.5}
    resumed = replace(
        job.attempts[0], first_step=105, progress=Progress(step=115, resumed_from=100)
    )
    again = replace(job, attempts=(resumed,))
    assert seconds(again) == seconds(job), "only steps of its own were made before that look"


def test_a_hang_is_the_time_without_progress() -> None:
    job = job_of(
        [slice_of(1, 0, 0, 3000)],
        [
            attempt(1, 1, 0, 0, 1900, step=50, checkpoint=50, idle=900.0, cause=Cause.HANG,
                    outcome=Outcome.FAILED),
            attempt(2, 1, 1900, 2000, 3000, step=100, resumed_from=50, **DONE),
        ],
        3000,
    )  # fmt: skip
    assert seconds(job) == {TimePart.PRODUCTIVE: 2000, TimePart.HUNG: 900, TimePart.PREPARING: 100}
    assert good(job) == pytest.approx(2000 / 3000 * 100)


def test_a_held_slice_and_a_rest_between_an_end_and_a_new_start() -> None:
    job = job_of(
        [slice_of(1, 0, 0, 1000, delete_asked_at=950), slice_of(2, 5000, 5000, 6000)],
        [
            attempt(1, 1, 0, 0, 500, step=5, checkpoint=5, outcome=Outcome.INTERRUPTED,
                    cause=Cause.CANCELLED),
            attempt(2, 2, 5000, 5000, 6000, step=15, resumed_from=5, **DONE),
        ],
        6000,
        idle_periods=(IdlePeriod(1000.0, 4900.0),),
    )  # fmt: skip
    assert seconds(job) == {
        TimePart.PRODUCTIVE: 1500, TimePart.HELD: 450, TimePart.RELEASING: 50, TimePart.WAITING: 100,
    }  # fmt: skip


def test_a_condemned_slice_is_billed_beside_its_replacement() -> None:
    bad = slice_of(1, 0, 0, 1500, role=SliceRole.CONDEMNED, condemned_at=500)
    job = job_of(
        [bad, slice_of(2, 500, 800, 2000)],
        [
            attempt(1, 1, 0, 0, 500, step=5, checkpoint=0, outcome=Outcome.FAILED,
                    cause=Cause.BAD_HOST),
            attempt(2, 2, 800, 800, 2000, step=12, **DONE),
        ],
        2000,
    )  # fmt: skip
    assert seconds(job) == {
        TimePart.PRODUCTIVE: 1200, TimePart.REDONE: 500, TimePart.CONDEMNED: 1000, TimePart.PROVISIONING: 300,
    }  # fmt: skip


def test_a_silent_program_is_judged_by_its_end_alone() -> None:
    slices = [slice_of(1, 0, 0, 1000), slice_of(2, 1000, 1000, 3000)]
    attempts = [attempt(1, 1, 0, 0, 1000, **LOST), attempt(2, 2, 1000, 1000, 3000, **DONE)]
    assert seconds(job_of(slices, attempts, 3000)) == {
        TimePart.PRODUCTIVE: 2000,
        TimePart.UNKNOWN: 1000,
    }


@pytest.mark.parametrize(
    ("first", "parts"),
    [
        (51, {TimePart.PRODUCTIVE: 1500, TimePart.REDONE: 500}),
        (None, {TimePart.PRODUCTIVE: 1000, TimePart.UNKNOWN: 1000}),
    ],
)
def test_a_first_step_shows_a_resume(first: int | None, parts: dict[TimePart, float]) -> None:
    """Print each tenth step; the backend looks when the second attempt has printed step 60."""
    second = attempt(2, 1, 1000, 1000, 2000, step=150, first_step=60, first_step_at=1000, **DONE)
    second = replace(second, progress=replace(second.progress, first_step=first))
    attempts = [attempt(1, 1, 0, 0, 1000, step=100, first_step=10, **LOST), second]
    assert seconds(job_of([slice_of(1, 0, 0, 2000)], attempts, 2000)) == parts


def test_a_first_attempt_begins_at_0_whatever_it_prints_first() -> None:
    assert began_from(attempt(1, 1, 0, 0, 1000, step=100, first_step=100)) == 0
    assert began_from(attempt(1, 1, 0, 0, 1000, step=150, resumed_from=100)) == 100
    assert began_from(attempt(2, 1, 0, 0, 1000, step=100, first_step=100)) is None


def test_an_attempt_of_unknown_beginning_loses_no_steps_of_others() -> None:
    job = job_of(
        [slice_of(1, 0, 0, 3000)],
        [
            attempt(1, 1, 0, 0, 1000, step=30, checkpoint=25, **LOST),
            attempt(2, 1, 1000, 1000, 2000, step=30, **LOST),
            attempt(3, 1, 2000, 2000, 3000, step=50, resumed_from=25, **DONE),
        ],
        3000,
    )
    parts = seconds(job)
    assert parts == pytest.approx(
        {TimePart.PRODUCTIVE: 1833.3, TimePart.REDONE: 166.7, TimePart.UNKNOWN: 1000}, abs=0.1
    )


# Any history ---------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> tuple[Job, float]:
    """Jobs that ran over several slices, in any phase, with clocks that jump back a little between writes."""
    at = draw(st.floats(0, 1e5))
    created, slices, attempts = at, list[Slice](), list[Attempt]()

    def later() -> float:
        nonlocal at
        at += draw(st.floats(-2, 5000))
        return at

    for k in range(1, draw(st.integers(1, 4)) + 1):
        requested, ready = later(), draw(st.one_of(st.none(), st.just(0.0)))
        ready = None if ready is None else later()
        for _ in range(draw(st.integers(0, 3)) if ready is not None else 0):
            started = later()
            running = later() if draw(st.booleans()) else None
            first = draw(st.one_of(st.none(), st.integers(0, 50)))
            made = draw(st.one_of(st.none(), st.integers(0, 100)))
            attempts.append(
                Attempt(
                    len(attempts) + 1, f"s{k}", started, running, later(),
                    cause=draw(st.sampled_from([*Cause])), outcome=draw(st.sampled_from(Outcome)),
                    progress=Progress(step=made, resumed_from=first, checkpoint=first),
                    first_step_at=None if running is None else later(),
                    idle=draw(st.one_of(st.none(), st.floats(0, 2000))),
                )
            )  # fmt: skip
        condemned = later() if draw(st.booleans()) and ready is not None else None
        deletion = later() if draw(st.booleans()) else None
        priced = draw(st.sampled_from([None, 0.24493, 7.372]))
        gone = later() if k < 4 else None
        slices.append(
            replace(slice_of(k, requested, ready, gone, condemned_at=condemned,
                             delete_asked_at=deletion), usd_per_hour=priced)
        )  # fmt: skip
    return job_of(slices, attempts, later(), created_at=created), at + 10.0


@given(histories(), st.sampled_from(GROUPS))
def test_the_parts_add_up_to_the_whole(history: tuple[Job, float], by: Group) -> None:
    job, now = history
    assert_adds_up(job, now, by)


# How the record gets what is read here -------------------------------------------------------------------------------


def test_the_first_step_is_noted_at_once_and_only_once() -> None:
    job = replace(job_in(State.RUNNING), slices=(replace(BARE, endpoints=ENDPOINTS, ready_at=0.0),))
    seen = Observation(
        {BARE.name: Present(SliceState.READY, ENDPOINTS)}, _stepping(3), readable_for=1e3
    )
    first = decide(job, seen, NOW).event
    assert first is not None
    job = apply(job, first)
    assert (job.attempt.first_step_at, job.attempt.first_step) == (NOW, 3)
    later = replace(seen, reports=_stepping(9))
    assert decide(job, later, NOW + 10).event is None, "progress is stored rarely"
    stored = decide(job, later, NOW + PROGRESS_EVERY).event
    assert stored is not None
    again = apply(job, stored).attempt
    assert (again.first_step, again.progress.step) == (3, 9)


def _stepping(step: int) -> tuple[HostReport, ...]:
    return tuple(report_of(host, progress=Progress(step=step)) for host in range(2))


def test_a_hang_leaves_in_the_record_how_long_it_was() -> None:
    job = replace(job_in(State.RUNNING), slices=(replace(BARE, endpoints=ENDPOINTS, ready_at=0.0),))
    reports = tuple(report_of(n, idle=1000.0 + n, looks=9) for n in range(2))
    seen = Observation({BARE.name: Present(SliceState.READY, ENDPOINTS)}, reports, readable_for=1e3)
    ended = decide(job, seen, NOW).event
    assert ended is not None
    assert apply(job, ended).attempts[0].idle == 1000.0


def test_the_time_between_an_end_and_a_new_start_is_kept_as_a_rest() -> None:
    over = replace(job_in(State.QUEUED), state=State.CANCELLED, finished_at=NOW)
    resumed = apply(over, event(over, EventKind.RESUME_REQUESTED, NOW + 50, "resume requested"))
    assert resumed.idle_periods == (IdlePeriod(NOW, NOW + 50),)
