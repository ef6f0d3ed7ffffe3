"""The number of starts of a program, and ends after which another start would be in vain."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import NOW, job_in, report, respec
from tpujob.domain.decide import attempt_end
from tpujob.domain.events import AttemptEnded, AttemptRepeated, Event, EventKind
from tpujob.domain.failures import starts, triage
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Attempt, Cause, End, Job, Outcome, Progress, State
from tpujob.domain.observations import HostReport, OutputLine, Unknown
from tpujob.protocol import Phase

PREEMPTED = End(Outcome.INTERRUPTED, Cause.PREEMPTED, None, "the slice was preempted")
SETUP = (report(0, phase=Phase.SETUP), report(1, phase=Phase.SETUP))
RUNS = (report(0), report(1))


def job(state: State = State.RUNNING, **recovery: Any) -> Job:
    """Return a job whose program has run for a minute if it runs."""
    record = job_in(state)
    ran = NOW - 60 if state is State.RUNNING else None
    attempt = replace(record.attempts[0], running_at=ran)
    return replace(record, spec=respec(record.spec, recovery=recovery), attempts=(attempt,))


def exited(*codes: int, **fields: Any) -> tuple[HostReport, ...]:
    return tuple(
        report(host, phase=Phase.EXITED, exit_code=code, ran=50.0, age=30.0, **fields)
        for host, code in enumerate(codes)
    )


def after(record: Job, reports: Sequence[HostReport] | Unknown, end: End | None = None) -> Event:
    heard = () if isinstance(reports, Unknown) else reports
    end = end or triage.ended(heard, record.hosts)
    assert end is not None
    return attempt_end.end_attempt(record, end, reports, NOW)


def fails(event: Event) -> bool:
    return isinstance(event.payload, AttemptEnded) and event.payload.next_state is State.FAILED


# Limits of the user --------------------------------------------------------------------------------------------------

ONCE = "`recovery.attempts` allows 1 start of the program, all used"


@pytest.mark.parametrize(
    "cause",
    [c for c in Cause if c not in (*starts.OVERTAKEN, Cause.PERMISSION, Cause.BAD_SPEC)],
)
def test_a_program_that_may_be_started_once_is_started_once_whatever_ends_it(cause: Cause) -> None:
    ended = after(job(attempts=1), RUNS, End(Outcome.FAILED, cause, 0, "it ended"))
    assert (fails(ended), ended.text.endswith(ONCE)) == (True, True)


@pytest.mark.parametrize(
    ("state", "reports", "started"),
    [
        (State.PREPARING, (), False),
        (State.PREPARING, SETUP, False),
        (State.PREPARING, (report(0, phase=Phase.EXITED, exit_code=None), SETUP[1]), False),
        (State.PREPARING, (report(0, phase=Phase.EXITED, exit_code=-15), SETUP[1]), False),
        (State.PREPARING, (SETUP[0], report(1)), True),
        (State.PREPARING, (SETUP[0], report(1, phase=Phase.STOPPING)), True),
        (State.PREPARING, (SETUP[0], *exited(-15)), True),
        (State.PREPARING, Unknown("503"), True),
        (State.RUNNING, (), True),
    ],
    ids=[
        "none",
        "set-up",
        "error",
        "stopped",
        "host-1",
        "stopping",
        "terminated",
        "unreadable",
        "stored",
    ],
)
def test_a_slice_that_is_lost_before_any_start_uses_none(
    state: State, reports: Any, started: bool
) -> None:
    event = after(job(state, attempts=1), reports, PREEMPTED)
    assert fails(event) is started
    assert starts.count_starts(apply(job(state), event)) == started


def test_starts_are_counted_from_the_last_request_of_a_person() -> None:
    def attempts(*causes: Cause) -> Job:
        made = [
            Attempt(n, "tj-000001-1", NOW + n, cause=cause, outcome=Outcome.INTERRUPTED)
            for n, cause in enumerate(causes, 1)
        ]
        return replace(job(), attempts=tuple(made))

    two = attempts(Cause.CRASH, Cause.PREEMPTED)
    assert starts.count_starts(two) == 2
    assert starts.count_starts(replace(two, fresh_at=NOW + 1.5)) == 1
    for cause in starts.STOPPED:
        assert starts.count_starts(attempts(Cause.CRASH, cause, Cause.PREEMPTED)) == 1


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("bad_hosts", Cause.BAD_HOST),
        ("preflights", Cause.PREFLIGHT),
        ("busy", Cause.TPU_BUSY),
        ("memory", Cause.OOM_HOST),
        ("memory", Cause.OOM_HBM),
        ("restarts", Cause.RESTART),
    ],
)
def test_each_budget_of_retries_can_be_set(name: str, cause: Cause) -> None:
    end = End(Outcome.FAILED, cause, 0, "it ended")
    assert not fails(after(job(), RUNS, end))
    none = after(job(**{name: 0}), RUNS, end)
    assert (fails(none), f"`recovery.{name}` is 0" in none.text) == (True, True)


# The program asks to be started again --------------------------------------------------------------------------------


def test_a_program_that_asks_for_it_is_started_again_on_the_same_slice() -> None:
    event = after(job(), exited(75, 75))
    assert event.kind is EventKind.ATTEMPT_RETRIED
    assert event.text == (
        "attempt 1 ended, RESTART: host 0: the program asked to be started again (exit code 75); "
        "starting again on the same slice in 1 s (9 more retries)"
    )


@pytest.mark.parametrize(
    ("before", "reached", "budget"),
    [
        ({}, {}, "restarts"),
        ({}, {"step": 5}, ""),
        ({"step": 5}, {}, "restarts"),
        ({"step": 5}, {"step": 5}, "restarts"),
        ({"step": 5}, {"step": 6}, ""),
        ({"step": 9, "checkpoint": 4}, {"step": 8, "checkpoint": 8}, ""),
    ],
)
def test_a_restart_after_new_progress_is_free(
    before: dict[str, int], reached: dict[str, int], budget: str
) -> None:
    record = job()
    first = replace(record.attempts[0], progress=Progress(**before))
    record = replace(record, attempts=(first, replace(record.attempts[0], number=2)))
    event = after(record, exited(75, 75, progress=Progress(**reached)))
    assert isinstance(event.payload, AttemptRepeated)
    assert event.payload.budget == budget


def test_a_program_that_always_asks_and_never_advances_fails() -> None:
    record = job()
    while record.state is not State.RELEASING:
        record = apply(record, after(replace(record, state=State.RUNNING), exited(75, 75)))
    assert (record.cause, record.next_state, len(record.attempts)) == (
        Cause.RESTART,
        State.FAILED,
        11,
    )
    assert {a.slice for a in record.attempts} == {"tj-000001-1"}


# What another start cannot cure --------------------------------------------------------------------------------------

NO_MODULE = (OutputLine("ModuleNotFoundError: No module named 'overrides'", part="error"),)


@pytest.mark.parametrize(
    ("code", "lines", "why"),
    [
        (
            2,
            (),
            "exit code 2 is not retried: a usage error, such as a wrong option or a missing file",
        ),
        (126, (), "exit code 126 is not retried: the command cannot be executed"),
        (127, (), "exit code 127 is not retried: the command was not found"),
        (1, NO_MODULE, "not retried: another start would lack the same"),
    ],
)
def test_an_end_that_every_start_would_repeat_is_not_retried(
    code: int, lines: tuple[OutputLine, ...], why: str
) -> None:
    event = after(job(), exited(code, code, evidence=lines))
    assert (fails(event), event.text.endswith(why)) == (True, True)


def test_nor_is_it_retried_if_an_earlier_attempt_was_lost_before_it_worked() -> None:
    record = job()
    lost = replace(record.attempts[0], running_at=None, ended_at=NOW - 100, cause=Cause.PREEMPTED)
    record = replace(record, attempts=(lost, replace(record.attempts[0], number=2)))
    assert fails(after(record, exited(127, 127)))


@pytest.mark.parametrize("code", [2, 126, 127])
@pytest.mark.parametrize(
    "case", ["step", "earlier step", "ran earlier", "another code", "runs on", "another cause"]
)
def test_it_is_retried_if_anything_shows_that_the_command_works(code: int, case: str) -> None:
    record, reports, end = job(), exited(code, code), None
    earlier = replace(record.attempts[0], running_at=NOW - 900, ended_at=NOW - 880)
    newest = replace(record.attempts[0], number=2)
    match case:
        case "step":
            reports = exited(code, code, progress=Progress(step=1))
        case "earlier step":
            earlier = replace(earlier, progress=Progress(step=7))
            record = replace(record, attempts=(earlier, newest))
        case "ran earlier":
            record = replace(record, attempts=(replace(earlier, ended_at=NOW - 600), newest))
        case "another code":
            reports = exited(code, 1)
        case "runs on":
            reports = (*exited(code), report(1))
        case _:
            end = End(Outcome.FAILED, Cause.OOM_HOST, 0, "out of memory")
    assert not fails(after(record, reports, end))


def test_exit_code_2_of_a_program_that_ran_for_minutes_is_no_usage_error() -> None:
    record = replace(job(), attempts=(replace(job().attempts[0], running_at=NOW - 600),))
    assert not fails(after(record, exited(2, 2)))
    assert fails(after(record, exited(127, 127))), "a command later in the script is missing"


def test_set_up_is_retried_as_its_downloads_may_fail_once() -> None:
    failed = {"phase": Phase.EXITED, "age": 30.0, "error_cause": Cause.SETUP}
    reports = [report(host, error="set-up ended with exit code 127", **failed) for host in (0, 1)]
    assert not fails(after(job(State.PREPARING), reports))
