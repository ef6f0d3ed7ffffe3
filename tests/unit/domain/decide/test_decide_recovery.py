"""Every combination of condemned slices, silent hosts, circuits and verdicts decides something legal and safe, too."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.support.records import (
    ENDPOINTS,
    NOW,
    SLICES,
    SPEC,
    job_in,
    report,
    respec,
    with_condemned,
)
from tests.unit.domain.decide.test_decide import check
from tpujob.domain.actions import Done, StartProgram
from tpujob.domain.decide.dispatch import decide, follow_up
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, DesiredState, Job, Outcome, State, Verdict, Watch
from tpujob.domain.observations import (
    Absent,
    Circuit,
    HostReport,
    Observation,
    Present,
    Silence,
    SliceSeen,
    SliceState,
    Unknown,
)

AGES = (10.0, 3600.0)
CONDEMNED: list[dict[str, Any]] = [
    {"condemned_at": NOW - age, "stopped": stopped, "delete_asked_at": asked}
    for age, stopped, asked in product(AGES, (False, True), (None, NOW - 5))
]
VERDICTS = [
    None,
    Verdict(step=7, host=1, device="TPU_0", blame="device", text="host 1 computes it otherwise"),
    Verdict(step=7, host=0, blame="model", text="not finite anywhere"),
    Verdict(step=7, host=0, text="step 7 loss=nan"),
    Verdict(text="loss=nan"),
]
ENDS: list[dict[str, Any]] = [
    {"code": 65},
    {"code": 71},
    {"code": -15, "error": "loss=nan", "error_cause": Cause.NONFINITE},
    {"code": 1, "error": "host 1: suspected", "error_cause": Cause.PREFLIGHT},
]
LOOKS: list[SliceSeen] = [
    Absent(),
    Unknown("503"),
    *(Present(s) for s in (SliceState.PREEMPTED, SliceState.DELETING, SliceState.WAITING)),
    Present(SliceState.READY, ENDPOINTS),
]
CIRCUITS = [
    {},
    {"1": Circuit("us-central2-b/v4-16/spot", Cause.STOCKOUT, 3, NOW - 900, NOW + 60, NOW - 5)},
    {"1": Circuit("us-central2-b/v4/spot", Cause.QUOTA, 1, NOW - 900, NOW - 60, NOW - 90)},
    {"1": Circuit("us-central2-b/v4/spot", Cause.QUOTA, 1, NOW - 9, NOW + 9000, chips=5, limit=4)},
]


@pytest.mark.parametrize("state", [s for s in State if not s.final])
def test_a_condemned_slice_is_stopped_and_given_back_whatever_the_job_does(state: State) -> None:
    reported: Sequence[tuple[HostReport, ...]] = ((), (report(0), report(1)))
    runs = state in (State.PREPARING, State.RUNNING)  # begun only when the earlier one is stopped
    for wish, condemned, bad_seen, seen, reports in product(
        DesiredState, CONDEMNED, LOOKS, LOOKS, reported[runs:]
    ):
        if runs and not condemned["stopped"]:
            continue
        job = with_condemned(job_in(state, desired=wish), condemned)
        looks: dict[str, SliceSeen] = {"tj-000001-1": bad_seen, "tj-000001-2": seen}
        check(job, Observation(looks, reports, readable_for=100.0))


SWAPS = {swap: respec(SPEC, recovery={"on_bad_host": swap}) for swap in ("swap", "release")}


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING])
def test_every_end_with_every_verdict_leads_somewhere(state: State) -> None:
    earlier = [None, Cause.NONFINITE, Cause.BAD_HOST]
    for verdict, end, swap, before, spent in product(VERDICTS, ENDS, SWAPS, earlier, (0, 99)):
        job = job_in(state)
        budgets = dict.fromkeys(("nonfinite", "bad_hosts", "preflights"), spent)
        job = replace(job, spec=SWAPS[swap], retries_used=budgets)
        if before:
            job = _second(job, before)
        fields = {key: value for key, value in end.items() if key != "code"}
        last = report(1, "exited", end["code"], verdict=verdict, physical="b", **fields)
        last = replace(last, attempt=len(job.attempts))
        first = replace(report(0, "exited", 76, physical="a"), attempt=len(job.attempts))
        check(job, Observation({"tj-000001-1": LOOKS[-1]}, (first, last), readable_for=100.0))


def _second(job: Job, cause: Cause) -> Job:
    """The same, after an attempt that ended for that cause on other machines."""
    (newest,) = job.attempts
    ended = replace(
        newest,
        ended_at=NOW - 300,
        outcome=Outcome.FAILED,
        cause=cause,
        verdict=VERDICTS[3],
        physical=("c", "d"),
        slice="tj-000001-0",
    )
    return replace(job, attempts=(ended, replace(newest, number=2)))


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING])
def test_every_silence_hang_and_outage_leads_somewhere(state: State) -> None:
    ages, idles, looks = (5.0, 400.0, 2000.0), (None, 10.0, 5000.0), (0, 4, 900)
    silences: list[dict[int, Silence]] = [{}, {0: Silence(10.0, 1)}, {0: Silence(4000.0, 30)}]
    phases = ("setup", "preflight", "running", "stopping")
    for age, idle, look, phase, silent, seen, readable in product(
        ages, idles, looks, phases, silences, LOOKS, (0.0, 100.0)
    ):
        host_report = replace(report(0, idle=idle, looks=look), age=age)
        other = replace(report(1, phase, idle=idle, looks=look), age=5.0)
        check(
            job_in(state),
            Observation(
                {"tj-000001-1": seen}, (host_report, other), readable_for=readable, silent=silent
            ),
        )


@pytest.mark.parametrize("state", [State.QUEUED, State.PROVISIONING, State.RELEASING])
def test_a_refused_offer_is_not_asked_for(state: State) -> None:
    for wish, circuits, seen, wake in product(DesiredState, CIRCUITS, SLICES, (0.0, NOW + 5)):
        job = replace(job_in(state, desired=wish), wake=wake)
        check(job, Observation({"tj-000001-1": seen}, circuits=circuits))


READY_SLICE = Present(SliceState.READY, ENDPOINTS)


@pytest.mark.parametrize(
    ("seen", "waited", "readable", "launched", "given_up"),
    [
        (READY_SLICE, 1801, 601.0, None, True),
        (READY_SLICE, 1801, 601.0, 601.0, True),
        # the backend was away, and has started them only just now; or the storage was; or SSH
        (READY_SLICE, 1801, 500.0, None, False),
        (READY_SLICE, 1801, 601.0, 500.0, False),
        (Unknown("503"), 1801, 601.0, None, False),
        # later a minute is enough, but not for hosts that took the start only just now
        (READY_SLICE, 3601, 61.0, None, True),
        (READY_SLICE, 3601, 61.0, 500.0, False),
    ],
)
def test_a_launch_without_a_word_is_given_up_only_by_those_who_could_hear_it(
    seen: SliceSeen, waited: float, readable: float, launched: float | None, given_up: bool
) -> None:
    attempt = replace(job_in(State.PREPARING).attempts[0], started_at=NOW - waited)
    job = replace(job_in(State.PREPARING), attempts=(attempt,))
    look = Observation({"tj-000001-1": seen}, (), readable_for=readable, launched_for=launched)
    decision = decide(job, look, NOW)
    happened = decision.event
    assert (happened is not None and "no report from hosts 0, 1" in happened.text) is given_up, (
        happened
    )
    assert given_up or isinstance(decision.action, StartProgram), "it is started again"


def test_a_start_that_came_late_is_stored_for_the_next_backend() -> None:
    job = job_in(State.PREPARING)
    assert follow_up(job, StartProgram(), Done(), NOW) is None, "nothing is late"
    attempt = replace(job.attempts[0], watch=Watch(since=NOW - 600, at=NOW - 10))
    stored = follow_up(late := replace(job, attempts=(attempt,)), StartProgram(), Done(), NOW)
    assert stored is not None
    after = apply(late, stored)
    assert after.attempt.watch == replace(attempt.watch, launched=NOW)
    assert follow_up(after, StartProgram(), Done(), NOW + 60) is None, "the first start counts"


def test_a_launch_without_a_word_names_the_host_that_does_not_answer() -> None:
    attempt = replace(job_in(State.PREPARING).attempts[0], started_at=NOW - 1801)
    job = replace(job_in(State.PREPARING), attempts=(attempt,))
    seen = {"tj-000001-1": READY_SLICE}
    look = Observation(seen, (), readable_for=700.0, silent={1: Silence(600.0, 30)})
    happened = decide(job, look, NOW).event
    assert happened
    assert happened.text.startswith(
        "attempt 1 ended, LOST_CONTACT: no report from hosts 0, 1 in 30 min; "
        "host 1 does not answer over SSH"
    )
    assert apply(job, happened).attempts[0].host == 1


@pytest.mark.parametrize("reports", [(), (report(1, "exited", code=1),)])
def test_hosts_that_a_late_start_has_just_reached_have_not_lost_their_agents(
    reports: tuple[HostReport, ...],
) -> None:
    """The attempt was decided half an hour ago, and no backend could start it before."""
    first = replace(job_in(State.PREPARING).attempts[0], running_at=NOW - 4000, ended_at=NOW - 2000)
    second = replace(first, number=2, started_at=NOW - 1900, running_at=None, ended_at=None)
    job = replace(job_in(State.PREPARING), attempts=(first, second))
    reports = tuple(replace(r, attempt=2, age=50.0) for r in reports)
    seen = {"tj-000001-1": READY_SLICE}
    look = Observation(seen, reports, readable_for=100.0, launched_for=60.0, answered={0: 200.0})
    assert decide(job, look, NOW).event is None
