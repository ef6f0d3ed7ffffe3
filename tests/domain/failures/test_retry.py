"""A program that takes its hosts down with it is not sent from one slice to the next for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.records import NOW, job_in
from tpujob.domain.decide import attempt_end
from tpujob.domain.events import AttemptEnded, Event, EventKind
from tpujob.domain.failures import retry
from tpujob.domain.model import Attempt, Cause, End, Job, Outcome, State

SILENT = End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, 0, "host 0 has not reported for 6 min")


def then(happened: Event) -> State:
    assert isinstance(happened.payload, AttemptEnded)
    return happened.payload.then


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
    assert "the program may be what kills them; `tpujob resume` tries again" in happened.text


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
