"""Ends of attempts, requests and holds: where they lead, what is kept of them, and in which words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import NOW, V6E, A, B, job_in, report, request
from tpujob.domain.actions import Done, StopProgram
from tpujob.domain.decide import attempt_end, follow_up, holding, provisioning, releasing
from tpujob.domain.events import Event, EventKind, Requeued
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, DesiredState, End, Job, Outcome, Progress, State
from tpujob.domain.observations import Circuit, HostReport, Observation
from tpujob.domain.spec import Recovery

BROKE = End(Outcome.FAILED, Cause.CRASH, 1, "host 1: exit code 1")
BAD = End(Outcome.INTERRUPTED, Cause.BAD_HOST, 1, "host 1: a device made it")
ALIVE = (report(0), report(1))
TOLD = (report(0, notice="preempted"), report(1))


def at(step: int | None, **fields: Any) -> Progress:
    return Progress(step=step, **fields)


# An attempt ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "reports", "kind"),
    [
        (BROKE, ALIVE, EventKind.ATTEMPT_RETRIED),
        (BROKE, TOLD, EventKind.ATTEMPT_ENDED),
        (BAD, ALIVE, EventKind.ATTEMPT_CONDEMNED),
        (BAD, TOLD, EventKind.ATTEMPT_ENDED),
        (BAD, (), EventKind.ATTEMPT_CONDEMNED),
    ],
    ids=["crash", "crash, told", "bad host", "bad host, told", "bad host, unheard"],
)
def test_a_slice_that_is_about_to_go_is_neither_used_again_nor_kept(
    end: End, reports: tuple[HostReport, ...], kind: EventKind
) -> None:
    job = job_in(State.RUNNING)
    happened = attempt_end.end_attempt(job, end, reports, NOW)
    assert happened.kind is kind
    after = apply(job, happened)
    assert (after.attempts[0].cause, after.attempts[0].message) == (end.cause, end.message)
    assert sum(after.retries_used.values()) == 1, "one budget pays, whatever becomes of the slice"
    if kind is EventKind.ATTEMPT_ENDED:
        assert (after.state, after.next_state) == (State.RELEASING, State.QUEUED)


def test_the_machines_below_the_hosts_are_kept_by_host_where_any_is_known() -> None:
    job = job_in(State.RUNNING)
    reports = (report(1, physical="rack-b"),)
    assert apply(job, attempt_end.end_attempt(job, BAD, reports, NOW)).attempts[0].physical == (
        "",
        "rack-b",
    )
    assert apply(job, attempt_end.end_attempt(job, BAD, ALIVE, NOW)).attempts[0].physical == ()


def test_how_far_an_attempt_had_come_is_what_its_hosts_said_last() -> None:
    job = job_in(State.RUNNING)
    job = replace(job, attempts=(replace(job.attempts[0], progress=at(5)),))
    reports = (report(0, progress=at(9)), report(1, progress=at(8)))
    assert apply(job, attempt_end.end_attempt(job, BROKE, reports, NOW)).attempts[0].progress == at(
        8
    )
    assert apply(job, attempt_end.end_attempt(job, BROKE, (), NOW)).attempts[0].progress == at(5)


def test_what_a_budget_has_left_is_said() -> None:
    def said(**spent: int) -> str:
        return attempt_end.end_attempt(
            replace(job_in(State.RUNNING), retries_used=spent), BROKE, (), NOW
        ).text

    assert said().startswith(
        "attempt 1 ended, CRASH: host 1: exit code 1; starting again on the same"
    )
    assert said().endswith("(2 more retries)")
    assert said(failures=1).endswith("(1 more retry)")
    assert said(failures=2).endswith("(no more retries)")
    assert said(failures=3).endswith("3 retries allowed by `recovery.failures`, all used")


def test_a_job_without_retries_is_not_said_to_have_used_them() -> None:
    job = job_in(State.RUNNING)
    job = replace(job, spec=job.spec.model_copy(update={"recovery": Recovery(failures=0)}))
    text = attempt_end.end_attempt(job, BROKE, (), NOW).text
    assert text.endswith("; no retry is allowed (`recovery.failures` is 0)")


def test_a_job_is_as_far_as_the_host_that_is_furthest_behind() -> None:
    first = at(
        9, steps=100, loss=0.5, phase="train", resumed_from=3, first_step=5, metrics={"mfu": 0.4}
    )
    second = at(7, steps=100, loss=0.7, phase="save", first_step=4, checkpoint=6)
    reports = (report(1, progress=second), report(0, progress=first), report(2, progress=at(None)))
    assert attempt_end.best_progress(reports) == Progress(
        step=7,
        steps=100,
        loss=0.7,
        phase="train",
        checkpoint=6,
        resumed_from=3,
        first_step=4,
        metrics={"mfu": 0.4},
    )
    assert attempt_end.best_progress(()) == Progress()
    silent = (report(0, progress=at(None, phase="compile", checkpoint=5)), report(1))
    assert attempt_end.best_progress(silent) == at(None, phase="compile", checkpoint=5)
    alone = (report(0), report(1, progress=at(4, resumed_from=2, checkpoint=2)))
    assert attempt_end.best_progress(alone) == at(4, resumed_from=2, checkpoint=2)
    savers = (report(0, progress=at(8, checkpoint=8)), report(1, progress=at(8)))
    assert attempt_end.best_progress(savers).checkpoint == 8, "one host often saves for all"


@pytest.mark.parametrize(
    ("hosts", "checkpoint", "partial"),
    [
        ([(450, 475, 478), (450, 475, 477)], 475, 478),
        ([(475, 478), (475, 478)], 478, None),
        ([(475, 478), ()], 478, None),  # host 0 saves for all
        ([(470, 478), (477,)], None, 478),
        ([(470, 478), (470,), ()], 470, 478),
        ([(), ()], None, None),
        ([range(69, 101), range(39, 71)], 70, 100),
        ([range(69, 101), range(35, 67)], 66, 100),  # host 0 has reported 66, too, some time ago
    ],
)
def test_a_checkpoint_is_one_that_every_host_has_which_saves(
    hosts: list[Sequence[int]], checkpoint: int | None, partial: int | None
) -> None:
    reports = [
        report(n, progress=at(500, checkpoint=max(steps, default=None)), checkpoints=tuple(steps))
        for n, steps in enumerate(hosts)
    ]
    progress = attempt_end.best_progress(reports)
    assert (progress.checkpoint, progress.partial_checkpoint) == (checkpoint, partial)
    if checkpoint == 475:
        assert attempt_end.best_progress(reports, 476).checkpoint == 475
        assert attempt_end.best_progress(reports, 460).checkpoint == 450
        assert attempt_end.best_progress(reports, 400).checkpoint == 475, "there is none before it"


def test_of_hosts_that_resumed_from_different_steps_the_earliest_counts() -> None:
    reports = (
        report(0, progress=at(300, resumed_from=254)),
        report(1, progress=at(300, resumed_from=253)),
    )
    assert attempt_end.best_progress(reports).resumed_from == 253
    lone = (report(0, progress=at(300, resumed_from=254)), report(1, progress=at(40, first_step=1)))
    assert attempt_end.best_progress(lone).resumed_from == 0
    fresh = (report(0, progress=at(30, first_step=1)), report(1, progress=at(30, first_step=1)))
    assert attempt_end.best_progress(fresh).resumed_from is None


# A request -----------------------------------------------------------------------------------------------------------


def refused(cause: Cause, **changes: Any) -> Job:
    """A job that asked in the first of two zones and came to nothing."""
    current = replace(request(B, None, NOW - 60), gone_at=None)
    job = replace(job_in(State.PROVISIONING), spec=V6E, slices=(current,), **changes)
    return apply(job, provisioning.refuse(job, cause, "the cloud's own words", "region", NOW))


@pytest.mark.parametrize(
    ("cause", "then", "remembered"),
    [
        (Cause.STOCKOUT, State.QUEUED, True),
        (Cause.QUOTA, State.QUEUED, True),
        (Cause.PERMISSION, State.QUEUED, True),
        (Cause.BAD_SPEC, State.QUEUED, True),
        (Cause.PREEMPTED, State.QUEUED, False),
        (Cause.BUDGET, State.FAILED, False),
    ],
)
def test_where_a_refused_request_leads(cause: Cause, then: State, remembered: bool) -> None:
    job = refused(cause)
    assert (job.state, job.next_state, job.cause) == (State.RELEASING, then, cause)
    assert job.slices[0].refused is (cause if remembered else None)
    assert job.slices[0].refused_scope == ("region" if remembered else "")
    assert job.message == f"no slice in us-east5-b, {cause}: the cloud's own words"
    assert job.slices[0].delete_reason == job.message


def test_a_type_that_no_zone_will_ever_give_ends_the_job() -> None:
    elsewhere = request(A, Cause.PERMISSION, NOW - 90)
    current = replace(request(B, None, NOW - 60, 2), gone_at=None)
    job = replace(job_in(State.PROVISIONING), spec=V6E, slices=(elsewhere, current))
    assert (
        apply(job, provisioning.refuse(job, Cause.PERMISSION, "x", "", NOW)).next_state
        is State.FAILED
    )


# A hold --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("usd", "text"), [(1.5, " at $1.50/h"), (0.0, " at $0.00/h"), (None, "")])
def test_a_held_slice_says_what_it_costs_where_that_is_known(usd: float | None, text: str) -> None:
    job = job_in(State.HOLDING)
    job = replace(job, slices=(replace(job.slices[0], usd_per_hour=usd),))
    assert holding.held_text(job) == f"stopped; tj-000001-1 is held{text} until the hold runs out"


@pytest.mark.parametrize("wish", [DesiredState.RELEASE, DesiredState.CLEAN])
def test_a_slice_that_is_not_to_be_held_is_being_released(wish: DesiredState) -> None:
    job = replace(job_in(State.HOLDING, desired=wish), stopped=False)
    stopped = follow_up(job, StopProgram(), Done(), NOW)
    assert stopped
    assert stopped.text == "the program is stopped; tj-000001-1 is being released"


def test_a_hold_keeps_how_far_the_program_had_come() -> None:
    job = job_in(State.RUNNING)
    reports = (report(0, progress=at(9)), report(1, progress=at(9)))
    held = apply(job, holding.stop(job, reports, NOW))
    assert (held.state, held.hold_until, held.stopped) == (State.HOLDING, NOW + 900, False)
    assert (held.attempts[0].progress.step, held.attempts[0].cause) == (9, Cause.CANCELLED)
    attempt = replace(job.attempts[0], progress=at(5))
    unheard = replace(job, attempts=(attempt,))
    assert apply(unheard, holding.stop(unheard, (), NOW)).attempts[0].progress.step == 5


def test_a_program_that_is_stopped_before_it_was_seen_running_has_run() -> None:
    job = job_in(State.PREPARING)
    reports = (report(0, progress=at(9)), report(1, progress=at(9)))
    (attempt,) = apply(job, holding.stop(job, reports, NOW)).attempts
    assert (attempt.progress.step, attempt.running_at) == (9, NOW)


# The way out ---------------------------------------------------------------------------------------------------------


def leaving(
    then: State, cause: Cause | None, wish: DesiredState = DesiredState.RUN, **changes: Any
) -> Job:
    job = job_in(State.RELEASING, next_state=then, desired=wish)
    gone = replace(job.slices[0], delete_asked_at=NOW - 9, gone_at=NOW, delete_reason="why")
    return replace(job, cause=cause, slices=(gone,), **changes)


def arrive(job: Job, circuits: Mapping[str, Circuit] | None = None) -> Event:
    happened = releasing.decide(job, Observation(circuits=circuits or {}), NOW).event
    assert happened is not None
    return happened


@pytest.mark.parametrize(
    ("then", "wish", "state"),
    [
        (State.QUEUED, DesiredState.RUN, State.QUEUED),
        (State.QUEUED, DesiredState.CANCEL, State.CANCELLED),
        (State.CANCELLED, DesiredState.RELEASE, State.CANCELLED),
        (State.CANCELLED, DesiredState.RUN, State.QUEUED),
        (State.FAILED, DesiredState.RUN, State.FAILED),
        (State.SUCCEEDED, DesiredState.CLEAN, State.SUCCEEDED),
    ],
)
def test_a_release_ends_in_the_planned_state(then: State, wish: DesiredState, state: State) -> None:
    job = leaving(then, Cause.CANCELLED if then is State.CANCELLED else Cause.CRASH, wish)
    arrived = apply(job, arrive(job))
    assert arrived.state is state
    if state in (State.FAILED, State.SUCCEEDED):
        assert arrived.message == "why"


@pytest.mark.parametrize(("spent", "plain"), [(1, 1.0), (3, 4.0), (9, 60.0)])
def test_the_wait_doubles_with_each_retry_spent(spent: int, plain: float) -> None:
    job = leaving(State.QUEUED, Cause.PREEMPTED, retries_used={"preemptions": spent})
    happened = arrive(job)
    assert isinstance(happened.payload, Requeued)
    assert 0.75 * plain <= happened.payload.delay <= 1.25 * plain
    assert happened.text.endswith("s (after PREEMPTED)")
    assert apply(job, happened).wake == NOW + happened.payload.delay


def test_after_a_refusal_the_wait_is_for_the_first_offer_to_open() -> None:
    tried = request(B, Cause.STOCKOUT, NOW - 60)
    job = replace(leaving(State.QUEUED, Cause.STOCKOUT), spec=V6E, slices=(tried,))
    b, a = "us-east5-b/v6e-8/spot", "us-east5-a/v6e-8/spot"
    full = Circuit(b, Cause.STOCKOUT, 5, NOW - 900, NOW + 300, NOW)
    assert arrive(job, {b: full}).payload == Requeued(1.0), "the other zone may be asked"
    both = {b: full, a: replace(full, pool=a, until=NOW + 40)}
    assert arrive(job, both).payload == Requeued(40.0)
