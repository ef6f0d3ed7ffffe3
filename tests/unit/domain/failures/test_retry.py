"""A program that takes its hosts down with it is not sent from one slice to the next for ever."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, job_in
from tpujob.domain.decide import attempt_end
from tpujob.domain.events import AttemptEnded, Event, EventKind
from tpujob.domain.failures import retry
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Attempt, Cause, End, Job, Outcome, State, Unreached

SILENT = End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, 0, "host 0 has not reported for 6 min")


def then(happened: Event) -> State:
    assert isinstance(happened.payload, AttemptEnded)
    return happened.payload.next_state


def lost(number: int, lasted: float, cause: Cause = Cause.LOST_CONTACT) -> Attempt:
    begun = NOW - 10_000 + 1000 * number
    over = {"ended_at": begun + lasted, "cause": cause, "outcome": Outcome.INTERRUPTED}
    return Attempt(number, f"tj-000001-{number}", begun, running_at=begun, **over)  # pyright: ignore[reportArgumentType]


def running(*before: Attempt, for_seconds: float = 400.0) -> Job:
    begun = NOW - for_seconds
    newest = Attempt(len(before) + 1, "tj-000001-1", begun, running_at=begun)
    return replace(job_in(State.RUNNING), attempts=(*before, newest))


def test_the_fourth_slice_in_a_row_whose_hosts_die_at_once_is_the_last() -> None:
    job = running(lost(1, 400), lost(2, 500), lost(3, 600))
    happened = attempt_end.end_attempt(job, SILENT, (), NOW)
    assert (happened.kind, then(happened)) == (EventKind.ATTEMPT_ENDED, State.FAILED)
    assert "the program may be killing them; `tpujob resume` retries" in happened.text


@pytest.mark.parametrize(
    "job",
    [
        running(lost(1, 400), lost(2, 500)),
        running(lost(1, 400), lost(2, 500), lost(3, 600), for_seconds=3600),
        running(lost(1, 400), lost(2, 3600), lost(3, 600)),
        running(lost(1, 400), lost(2, 500, Cause.PREEMPTED), lost(3, 600)),
        replace(running(lost(1, 400), lost(2, 500), lost(3, 600)), fresh_at=NOW - 7500),
    ],
    ids=["three", "ran for an hour", "one ran for an hour", "preempted between", "resumed"],
)
def test_hosts_that_die_otherwise_are_bad_luck(job: Job) -> None:
    assert retry.kills_hosts(job, NOW) == ""
    assert then(attempt_end.end_attempt(job, SILENT, (), NOW)) is State.QUEUED


# The check before the program ----------------------------------------------------------------------------------------

LATE = End(Outcome.FAILED, Cause.PREFLIGHT, 0, "host 1 did not come within 220 s", late=True)
WRONG = End(Outcome.FAILED, Cause.PREFLIGHT, 0, "jax finds 3 chips on this host")
APART = End(Outcome.FAILED, Cause.SETUP, 3, "no answer", unreached=Unreached(3, 0, 8476))


def ends(job: Job, end: End) -> Job:
    return apply(job, attempt_end.end_attempt(job, end, (), NOW))


def test_what_was_late_once_is_tried_again_on_the_same_slice() -> None:
    once = ends(running(), LATE)
    assert (once.state, once.condemned) == (State.PREPARING, ())
    assert once.attempts[-1].slice == once.attempts[0].slice
    assert once.retries_used == {"preflights": 1}, "the same budget pays for both"
    again = ends(once, LATE)
    assert [s.name for s in again.condemned] == ["tj-000001-1"], "late twice is bad"


def test_what_was_found_wrong_is_never_tried_on_the_same_slice() -> None:
    assert ends(running(), WRONG).condemned
    assert ends(ends(running(), LATE), WRONG).condemned


def test_hosts_that_a_firewall_keeps_apart_stay_on_their_slice() -> None:
    job = running()
    while job.state is not State.RELEASING:
        assert not job.condemned
        assert {a.slice for a in job.attempts} == {"tj-000001-1"}
        job = ends(job, APART)
    assert (job.next_state, job.cause) == (State.FAILED, Cause.SETUP)
    assert job.attempts[-1].unreached == Unreached(3, 0, 8476)
