"""A job on demand that is ahead of its deadline: when it returns to spot, and when a missed deadline is stored."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import ENDPOINTS, NOW, job_in, respec
from tpujob.domain.actions import Decision, StopProgram
from tpujob.domain.capacity.deadline import deadline_of
from tpujob.domain.decide import deadlines
from tpujob.domain.decide.dispatch import decide
from tpujob.domain.events import EventKind, SliceHeld
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, DesiredState, ExpectedRun, Job, Progress, State
from tpujob.domain.observations import (
    Circuit,
    HostReport,
    Observation,
    Present,
    SliceState,
    Unknown,
)
from tpujob.domain.spec import dump, parse
from tpujob.protocol import Phase

NAME, SHAPE = "tj-000001-1", "us-central2-b/v4-16/spot"
READY = Present(SliceState.READY, ENDPOINTS)


def on_demand(state: State = State.RUNNING, step: int = 500, **changes: Any) -> Job:
    """A job that has made half of its 5000 s of work, at 5 s a step, and should end in 90,000 s."""
    job = job_in(state)
    tpu = {"zones": ["us-central2-b"], "pricing": ["spot", "on-demand"]}
    document = {**dump(respec(job.spec, tpu=tpu)), "finish_by": "1970-01-02T03:46:40Z"}
    assert job.attempt
    progress = Progress(step=step, steps=1000, checkpoint=step, resumed_from=0)
    attempt = replace(
        job.attempt,
        progress=progress,
        first_step=0,
        first_step_at=NOW - 5 * step,
        progress_at=NOW,
    )
    made = replace(
        job,
        spec=parse(document),
        created_at=NOW - 5 * step,
        slices=tuple(replace(s, pricing="on-demand") for s in job.slices),
        attempts=(attempt,),
        expected=ExpectedRun(work=5000, start=600, wait=300, lost=60),
    )
    return replace(made, **changes)


def go_back(job: Job, *reports: HostReport, look: Any = READY, **seen: Any) -> Decision | None:
    return deadlines.go_back(job, Observation({NAME: look}, **seen), reports, NOW)


def test_its_program_is_stopped_and_it_waits_for_spot() -> None:
    job = on_demand()
    decision = go_back(job)
    assert decision
    assert decision.action == StopProgram()
    assert decision.event
    assert isinstance(decision.event.payload, SliceHeld)
    after = apply(job, decision.event)
    assert (after.state, after.next_state) == (State.HOLDING, State.QUEUED)
    assert after.attempt
    assert after.attempt.cause is Cause.CANCELLED
    assert after.retries_used == job.retries_used


def test_it_stays_while_spot_is_refused() -> None:
    closed = Circuit(SHAPE, Cause.STOCKOUT, 1, NOW - 5, NOW + 15, NOW - 5)
    assert go_back(on_demand(), circuits={SHAPE: closed}) is None
    assert go_back(on_demand(), circuits={SHAPE: replace(closed, until=NOW - 1)})


@pytest.mark.parametrize("look", [Unknown("503"), Present(SliceState.REPAIRING, ENDPOINTS)])
def test_nothing_is_given_up_unseen(look: Any) -> None:
    assert go_back(on_demand(), look=look) is None


def test_it_stays_on_spot_behind_the_line_and_after_a_notice() -> None:
    assert go_back(on_demand(step=2)) is None
    noticed = HostReport(0, 1, Phase.RUNNING, 1.0, notice="maintenance")
    assert go_back(on_demand(), noticed) is None
    job = on_demand()
    spot = tuple(replace(s, pricing="spot") for s in job.slices)
    assert go_back(replace(job, slices=spot)) is None
    assert go_back(replace(job, expected=None)) is None


def test_it_stays_where_its_starts_are_limited() -> None:
    job = on_demand()
    assert go_back(job)
    limited = respec(job.spec, recovery={"attempts": 3})
    assert go_back(replace(job, spec=limited)) is None


def test_a_missed_deadline_is_stored_once_and_changes_nothing_else() -> None:
    job = on_demand()
    facts = deadline_of(job)
    assert facts
    assert deadlines.note_missed(job, facts.finish_by - 1) is None
    decision = decide(job, Observation({NAME: READY}), facts.finish_by)
    assert decision.event
    assert decision.event.kind is EventKind.DEADLINE_MISSED
    assert decision.event.text == "missed its deadline, 1970-01-02 03:46 UTC; it continues"
    after = apply(job, decision.event)
    assert replace(after, missed_at=None) == job
    assert deadlines.note_missed(after, facts.finish_by + 60) is None


def test_a_job_that_ends_or_was_cancelled_misses_nothing() -> None:
    over = 90_000.0 + NOW + 1
    ends = on_demand(State.RELEASING, next_state=State.SUCCEEDED)
    assert deadlines.note_missed(ends, over) is None
    assert deadlines.note_missed(replace(ends, next_state=State.QUEUED), over)
    assert deadlines.note_missed(on_demand(desired=DesiredState.CANCEL), over) is None
