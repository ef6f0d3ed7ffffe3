"""Decisions of budgets in every state: a warning, no slice that they do not pay for, an end in time."""

from dataclasses import replace
from itertools import product

import pytest

from tests.support.records import ENDPOINTS, NOW, SLICES, job_in, report, with_condemned
from tests.unit.domain.money.test_budget import with_budget
from tpujob.domain import invariants
from tpujob.domain.actions import CreateSlice, DeleteSlice, Done, StartProgram, StopProgram
from tpujob.domain.decide import decide, follow_up
from tpujob.domain.events import BudgetChanged, EventKind
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import Cause, DesiredState, Job, Outcome, State
from tpujob.domain.money.ledger import US
from tpujob.domain.observations import (
    Absent,
    Account,
    Funds,
    Observation,
    Present,
    SliceState,
    Unknown,
)

LIVE = [state for state in State if not state.final]
READY = {"tj-000001-1": Present(SliceState.READY, ENDPOINTS)}
SEEN = Observation(READY, (report(0), report(1)), readable_for=100.0)
EXITED = replace(SEEN, reports=(report(0, "exited", 75), report(1, "exited", 75)))
#: its slice has cost $1 an hour for 400 s, and takes 210 s to go: of this, nothing is left
POOR = 0.15
EMPTY = Account("user ada", 100 * US, 100 * US, 0, 0, NOW)


def done(job: Job, seen: Observation, now: float = NOW) -> Job:
    """After what is decided, and after its action has taken effect."""
    decision = decide(job, seen, now)
    assert decision.event or decision.action, f"nothing was decided for a job that is {job.state}"
    after = apply(job, decision.event) if decision.event else job
    event = follow_up(after, decision.action, Done(), now) if decision.action else None
    after = apply(after, event) if event else after
    assert invariants.of_job(after) == []
    return after


def changed(job: Job, usd: int) -> Job:
    return apply(job, event(job, EventKind.BUDGET_CHANGED, NOW, "", BudgetChanged(usd * US)))


def test_a_job_with_enough_goes_on() -> None:
    for state in LIVE:
        job = job_in(state)
        assert decide(with_budget(job, 50), SEEN, NOW) == decide(job, SEEN, NOW)


# The warning ---------------------------------------------------------------------------------------------------------


def spent_nine(state: State) -> Job:
    """A slice that it had before has cost $9."""
    old = replace(
        job_in(State.RUNNING).slices[0], name="tj-000001-0", k=0, ready_at=NOW - 10 * 3600,
        gone_at=NOW - 3600, delete_asked_at=NOW - 3700, delete_reason="lost",
    )  # fmt: skip
    job = job_in(state)
    return with_budget(job, 10, slices=(old, *job.slices))


@pytest.mark.parametrize("state", [s for s in LIVE if s is not State.RELEASING])
def test_four_fifths_are_told_once_for_each_limit(state: State) -> None:
    job = spent_nine(state)
    event = decide(job, SEEN, NOW).event
    assert (event.kind, event.state) == (EventKind.BUDGET_WARNED, state)
    assert event.text.endswith("of the budget of $10.00 are spent")
    warned = apply(job, event)
    assert warned.message == job.message, "why it stands where it stands has not changed"
    for other, again in (
        (warned, False),
        (changed(warned, 12), False),
        (changed(warned, 11), True),
    ):
        decided = decide(other, SEEN, NOW).event
        is_warning = decided is not None and decided.kind is EventKind.BUDGET_WARNED
        assert is_warning is again


def test_who_is_leaving_is_not_warned() -> None:
    event = decide(spent_nine(State.RELEASING), SEEN, NOW).event
    assert event is None or event.kind is not EventKind.BUDGET_WARNED


# The end -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING])
def test_a_program_is_stopped_and_then_its_slice_is_given_back(state: State) -> None:
    job = with_budget(job_in(state), POOR)
    decision = decide(job, SEEN, NOW)
    assert decision.event
    assert decision.action == StopProgram()
    stopping = apply(job, decision.event)
    assert stopping.attempt
    assert stopping.state is State.HOLDING
    assert (stopping.attempt.outcome, stopping.attempt.cause) == (Outcome.INTERRUPTED, Cause.BUDGET)
    assert "the budget, $0.15, is used up: $0.11 spent" in stopping.message
    assert decide(stopping, SEEN, NOW + 1).action == StopProgram(), "until it is confirmed"
    stopped = done(stopping, SEEN, NOW + 2)
    assert stopped.stopped
    assert decide(stopped, SEEN, NOW + 2).action is None, "its hosts are about to tell its end"
    leaving = done(stopped, EXITED, NOW + 3)
    assert (leaving.state, leaving.next_state, leaving.cause) == (
        State.RELEASING,
        State.FAILED,
        Cause.BUDGET,
    )
    gone = Observation({"tj-000001-1": Absent()}, deleting=frozenset({"tj-000001-1"}))
    failed = done(done(leaving, gone, NOW + 60), gone, NOW + 60)
    assert (failed.state, failed.cause) == (State.FAILED, Cause.BUDGET)
    assert "the budget, $0.15, is used up" in failed.message


def test_hosts_that_do_not_tell_the_end_are_not_waited_for_long() -> None:
    stopped = replace(done(with_budget(job_in(State.RUNNING), POOR), SEEN), stopped=True)
    assert decide(stopped, SEEN, NOW + 45).action is None
    for seen in (SEEN, Observation(READY, Unknown("503"))):
        assert decide(stopped, seen, NOW + 51).action == DeleteSlice("tj-000001-1")


def test_a_program_that_cannot_be_stopped_does_not_keep_its_slice() -> None:
    stopping = done(with_budget(job_in(State.RUNNING), POOR), SEEN)
    stopping = replace(stopping, stopped=False)
    assert decide(stopping, SEEN, NOW + 119).action == StopProgram()
    assert decide(stopping, SEEN, NOW + 121).action == DeleteSlice("tj-000001-1")


@pytest.mark.parametrize(
    "seen", [Observation(), Observation({"tj-000001-1": Unknown("503")}, Unknown("503"))]
)
def test_nothing_needs_to_be_seen_for_it(seen: Observation) -> None:
    """Rates and times are in the record. (What was not looked at is Unknown.)"""
    job = with_budget(job_in(State.RUNNING), POOR)
    assert decide(job, seen, NOW).action == StopProgram()


def test_a_program_that_has_just_succeeded_has_succeeded() -> None:
    ended = replace(SEEN, reports=(report(0, "exited", 0), report(1, "exited", 0)))
    after = done(with_budget(job_in(State.RUNNING), POOR), ended)
    assert after.next_state is State.SUCCEEDED


def test_a_hold_ends_when_nothing_is_left() -> None:
    job = with_budget(job_in(State.HOLDING, desired=DesiredState.CANCEL), POOR)
    after = done(job, EXITED)
    assert (after.state, after.next_state) == (State.RELEASING, State.CANCELLED)
    assert "is used up" in after.slices[-1].delete_reason


def test_a_held_slice_without_money_is_not_resumed() -> None:
    after = done(with_budget(job_in(State.HOLDING), POOR), EXITED)
    assert (after.next_state, after.cause) == (State.FAILED, Cause.BUDGET)


def test_a_request_is_taken_back_when_nothing_is_left() -> None:
    old = replace(spent_nine(State.PROVISIONING), warned_limit=9 * US, spend_limit=9 * US)
    for look in SLICES:
        after = old
        while after.state is State.PROVISIONING:
            after = done(after, Observation({"tj-000001-1": look}))
        assert (after.state, after.next_state, after.cause) == (
            State.RELEASING,
            State.FAILED,
            Cause.BUDGET,
        )


def test_no_slice_is_asked_for_that_is_not_paid_for() -> None:
    """Five minutes and the way out, 510 s, of a spot v4-16 at $7.372 an hour are $1.04."""
    assert (
        decide(with_budget(job_in(State.QUEUED), 1.05), Observation(), NOW).action == CreateSlice()
    )
    failed = done(with_budget(job_in(State.QUEUED), 1.04), Observation())
    assert (failed.state, failed.cause) == (State.FAILED, Cause.BUDGET)
    assert failed.message == (
        "the budget does not pay for a slice: $0.00 of $1.04 spent, $1.04 left; 5 min of v4-16 in "
        "us-central2-b at $7.37/h and its release cost $1.04"
    )


def test_a_condemned_slice_goes_before_the_job_ends() -> None:
    fields = {"condemned_at": NOW - 10, "stopped": True, "delete_asked_at": None}
    job = with_budget(with_condemned(job_in(State.QUEUED), fields), POOR)
    decision = decide(job, SEEN, NOW)
    assert decision.event is None, "a job that has ended owns nothing"
    assert decision.action == DeleteSlice("tj-000001-1")
    rich = with_budget(job, 50)
    assert decide(rich, SEEN, NOW).action == CreateSlice()


# A limit that is changed on the way out ------------------------------------------------------------------------------


def test_more_money_keeps_the_slice_that_is_about_to_go() -> None:
    stopped = replace(done(with_budget(job_in(State.RUNNING), POOR), SEEN), stopped=True)
    again = decide(changed(stopped, 50), EXITED, NOW + 5)
    assert again.action == StartProgram()
    assert again.event
    going = apply(changed(stopped, 50), again.event)
    assert (going.state, going.next_state, going.cause) == (State.PREPARING, None, None)
    assert len(going.attempts) == 2


def test_more_money_while_the_slice_goes_asks_for_another() -> None:
    stopped = replace(done(with_budget(job_in(State.RUNNING), POOR), SEEN), stopped=True)
    leaving = changed(done(stopped, EXITED, NOW + 5), 50)
    assert leaving.next_state is State.QUEUED
    other = job_in(State.RELEASING, next_state=State.FAILED)
    assert changed(other, 50).next_state is State.FAILED, "it ends for another cause"


# Budgets that are shared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING])
def test_a_shared_budget_stops_a_job_without_one(state: State) -> None:
    after = done(job_in(state), replace(SEEN, funds=Funds(accounts=(EMPTY,))))
    assert (after.next_state, after.cause) == (State.FAILED, Cause.BUDGET)
    assert after.attempt
    assert after.attempt.message == "the budget of user ada, $100.00, is used up: $100.00 spent"


def test_a_shared_budget_is_as_old_as_it_is() -> None:
    """$36 an hour are a cent each second."""
    late = replace(EMPTY, used=99 * US, burn=36 * US, at=NOW - 99)
    assert (
        decide(job_in(State.RUNNING), replace(SEEN, funds=Funds(accounts=(late,))), NOW).event
        is None
    )
    later = decide(job_in(State.RUNNING), replace(SEEN, funds=Funds(accounts=(late,))), NOW + 1)
    assert later.action == StopProgram()


def test_who_has_no_slice_waits_for_a_shared_budget() -> None:
    seen = Observation(funds=Funds(accounts=(EMPTY,)))
    waits = decide(job_in(State.QUEUED), seen, NOW)
    assert (waits.event, waits.action, waits.wake_in) == (None, None, 60.0)
    after = done(job_in(State.PROVISIONING), replace(SEEN, funds=Funds(accounts=(EMPTY,))))
    assert (after.next_state, after.cause) == (State.QUEUED, Cause.BUDGET)


def test_a_look_comes_when_something_is_due() -> None:
    job = with_budget(job_in(State.RUNNING), 0.111111 + 0.058333 + 0.001)  # 3.6 s of it are left
    job = replace(job, warned_limit=round(0.170444 * US))
    assert 3.0 < decide(job, SEEN, NOW).wake_in < 4.0


# Every combination ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LIVE)
def test_every_combination_decides_something_legal(state: State) -> None:
    accounts = ((), (EMPTY,), (replace(EMPTY, used=0),))
    for wish, look, usd, shared in product(
        DesiredState, SLICES, (None, POOR, 0.17, 50.0), accounts
    ):
        job = with_budget(job_in(state, desired=wish), usd)
        seen = Observation(
            {"tj-000001-1": look}, (report(0), report(1)), funds=Funds(accounts=shared)
        )
        decision = decide(job, seen, NOW)
        after = apply(job, decision.event) if decision.event else job
        assert invariants.of_job(after) == []
        assert decision.wake_in >= 0
        if shared == (EMPTY,) or (usd == POOR and state is not State.PROVISIONING):
            assert not isinstance(decision.action, (CreateSlice, StartProgram)), (job, look)
