"""Golden texts of `tpujob why` at 80 columns. If one differs and the new one reads better, replace it."""

from typing import Any, cast

import pytest

from tests.support.commands import Tpujob
from tests.support.golden import golden
from tests.support.scripted import (
    AT,
    ScriptedJobs,
    attempt_view,
    budget,
    coming,
    event_view,
    job_row,
    job_view,
    slice_view,
)
from tpujob.api import AttemptView, JobView
from tpujob.cli.render import words
from tpujob.cli.render.job_page import job_page, why_page
from tpujob.cli.render.listing import job_table
from tpujob.cli.render.text import width
from tpujob.domain.model import State
from tpujob.domain.text import seconds

pytestmark = pytest.mark.usefixtures("utc")

NOW = (seconds(AT) or 0) + 900
CRASHED = attempt_view(
    1,
    ended_at="2026-01-02T03:14:05.000Z",
    outcome="failed",
    cause="TPU_BUSY",
    host=1,
    message="host 1: another process holds the TPU (exit code 134)",
    evidence=[
        {
            "host": 1,
            "text": "Couldn't open iommu group /dev/vfio/0: \x1b[31mDevice or resource busy\x1b[0m",
        },
        {"host": 0, "text": "also ended: exit code 76"},
    ],
    step=480,
    checkpoint=400,
)


def refused(k: int, at: str) -> Any:
    return slice_view(
        f"tj-000042-{k}",
        requested_at=at,
        ready_at=None,
        gone_at=at,
        usd=0.0,
        hosts=[],
        reason="no slice in us-central2-b, STOCKOUT: There is no more capacity in the zone",
    )


def waiting() -> JobView:
    return job_view(
        state="queued",
        state_since="2026-01-02T03:18:00.000Z",
        message="3rd stockout in us-central2-b since 03:12 UTC, next try there in 6 min",
        waiting="4th stockout in us-central2-b since 03:12 UTC, next try there in 5 min, "
        "us-central2-c next in 2 min",
        capacity={
            "cause": "STOCKOUT",
            "type": "v4-16",
            "zone": "us-central2-b",
            "refusals": 4,
            "since": "2026-01-02T03:12:00.000Z",
            "answer": "no slice in us-central2-b, STOCKOUT: There is no more capacity in the zone",
            "asking": "",
            "again_at": "2026-01-02T03:24:00.000Z",
            "first_type": "v4-16",
            "first_zone": "us-central2-c",
            "first_at": "2026-01-02T03:21:00.000Z",
        },
        next=coming(
            "request_slice",
            "it requests another slice and resumes from checkpoint 400",
            at="2026-01-02T03:24:00.000Z",
        ),
        usd_per_hour=0.0,
        retries_used={"failures": 1, "stockouts": 4},
        budgets=[
            budget("preemptions", 0, 100),
            budget("failures", 1, 3),
            budget("stockouts", 4, None),
        ],
        progress_at=None,
        slices=[
            slice_view("tj-000042-1", gone_at=AT, reason="attempt 1 ended, TPU_BUSY"),
            *(refused(k, f"2026-01-02T03:{10 + k}:00.000Z") for k in (2, 3, 4, 5)),
        ],
        attempts=[CRASHED],
    )


def test_a_job_that_waits_for_capacity() -> None:
    events = [event_view(1, "queued", "waiting 360 s, then asking for another slice")]
    golden("why-waiting", why_page(waiting(), events, 80, NOW))


def test_a_program_that_is_started_again_after_a_crash() -> None:
    job = job_view(
        state="preparing",
        state_since=CRASHED["ended_at"],
        message=f"attempt 1 ended, TPU_BUSY: {CRASHED['message']}; starting again on the same slice in 20 s",
        next=coming(
            "start_program",
            "the program is started again on the same slice",
            at="2026-01-02T03:19:25.000Z",
        ),
        budgets=[budget("preemptions", 0, 100), budget("failures", 1, 3)],
        step=None,
        progress_at=None,
        attempt=2,
        attempts=[CRASHED, attempt_view(2)],
    )
    golden("why-crashed", why_page(job, [], 80, NOW))


EVIDENCE = [
    *({"host": 1, "text": line} for line in ("Traceback", "  File a", "    x()", "  File b")),
    {"host": 1, "text": "    y()"},
    {"host": 1, "text": "ValueError: no such file"},
    {"host": 0, "text": "also ended: exit code 76"},
]


@pytest.mark.parametrize(
    ("cause", "shown", "left_out"),
    [("CRASH", "ValueError", "Traceback"), ("HANG", "Traceback", "ValueError")],
)
def test_the_best_line_of_evidence_is_shown(cause: str, shown: str, left_out: str) -> None:
    crashed = cast("AttemptView", CRASHED | {"cause": cause, "evidence": EVIDENCE})
    page = why_page(job_view(attempts=[crashed]), [], 80, NOW)
    assert shown in page
    assert left_out not in page
    assert "`tpujob show` has all of it" in page
    whole = job_page(job_view(attempts=[crashed]), [], 80, NOW)
    assert shown in whole
    assert left_out in whole


def test_announced_maintenance_is_shown_with_its_window() -> None:
    coming = {"starts": "2026-01-08T04:00:00.000Z", "ends": "2026-01-08T08:00:00.000Z"}
    coming |= {"latest": None, "kind": "SCHEDULED", "status": "PENDING"}
    text = "scheduled maintenance of its hosts from 2026-01-08 04:00 to 2026-01-08 08:00 UTC, in 6d"
    job = job_view(maintenance=coming)
    for page in (why_page(job, [], 200, NOW), job_page(job, [], 200, NOW)):
        (line,) = [line for line in page.splitlines() if line.startswith("  Upcoming")]
        assert text in line
    over = job_view(maintenance=coming | {"starts": "2026-01-01T00:00:00.000Z"})
    assert "which has begun" in why_page(over, [], 200, NOW)
    assert "Upcoming" not in why_page(job_view(), [], 200, NOW)


def test_a_running_job_that_makes_no_step_while_the_cloud_does_not_answer() -> None:
    job = job_view(
        message="attempt 1 runs on 2 hosts",
        trouble="503 the service is unavailable",
        trouble_since="2026-01-02T03:10:00.000Z",
        stall_s=1200.0,
    )
    golden("why-stuck", why_page(job, [], 80, NOW))


def swapped() -> JobView:
    """A replay has named a device; the slice waits for its replacement."""
    ended = attempt_view(
        1,
        ended_at="2026-01-02T03:14:05.000Z",
        outcome="failed",
        cause="BAD_HOST",
        host=1,
        message="device 2 of host 1 made a NaN at step 41",
        physical=["rack-00", "rack-01"],
        verdict={
            "step": 41,
            "host": 1,
            "device": "device 2",
            "blame": "device",
            "text": "device 2 of host 1 made a NaN at step 41",
        },
        step=41,
        checkpoint=40,
    )
    return job_view(
        state="provisioning",
        state_since="2026-01-02T03:14:10.000Z",
        message="asking for tj-000042-2, spot v4-16 in us-central2-b",
        next=coming("get_slice", "when the slice is ready, the program starts on all hosts"),
        usd_per_hour=7.37,
        condemned=["tj-000042-1"],
        step=None,
        progress_at=None,
        stall_s=None,
        slices=[
            slice_view("tj-000042-1", role="condemned", reason="BAD_HOST"),
            slice_view("tj-000042-2", ready_at=None, usd=0.0, hosts=[]),
        ],
        attempts=[ended],
    )


def test_a_slice_that_was_swapped_out() -> None:
    golden("why-swapped", why_page(swapped(), [], 80, NOW))
    page = job_page(swapped(), [], 80, NOW)
    assert "  tj-000042-1  condemned  spot v4-16 in us-central2-b  $0.12 at $7.37/h" in page
    assert "not finite at step 41, on host 1, device 2, machine rack-01: a replay" in page
    assert "Swap      tj-000042-1 was swapped out as bad" in page


def test_the_list_says_what_is_billed_beside_the_rows() -> None:
    rows = job_table([job_row(swapped()), job_row(job_view("000043"))], 80, NOW)
    *_, last, rest = rows.splitlines()
    assert f"{last} {rest}" == (
        "000042: tj-000042-1 was swapped out as bad; kept until a replacement is ready; "
        "$7.37/h in all"
    )
    assert len(job_table([job_row(job_view())], 80, NOW).splitlines()) == 2, "only when it is so"


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ({}, "not finite: the program did not replay the step, so this attempt alone does not"),
        ({"step": 7}, "not finite at step 7: the program did not replay"),
        ({"step": 0, "blame": "data"}, "not finite at step 0: a replay blames the data"),
        ({"host": 5, "blame": "model"}, "not finite on host 5: a replay blames the model"),
        ({"blame": "gremlins"}, "not finite: gremlins is to blame"),
    ],
)
def test_a_verdict_is_shown_as_far_as_it_is_known(verdict: dict[str, Any], sentence: str) -> None:
    whole = {"step": None, "host": None, "device": "", "blame": "", "text": "loss=nan"} | verdict
    attempt = cast("AttemptView", attempt_view(1, verdict=whole))
    assert words.verdict_of(attempt).startswith(sentence)


@pytest.mark.parametrize(
    ("stall_s", "phase", "sentence"),
    [
        (1800.0, "train", "no step reported yet; 30m00s without progress is a hang"),
        (None, "train", "no step reported yet"),
        (900.0, "", "count until then; 15m00s without either is a hang"),
    ],
)
def test_a_first_step_that_does_not_come(stall_s: float | None, phase: str, sentence: str) -> None:
    page = why_page(job_view(step=None, stall_s=stall_s, phase=phase), [], 80, NOW)
    assert f"{sentence} Retries" in " ".join(page.split())


@pytest.mark.parametrize("wish", ["run", "cancel", "release", "clean"])
@pytest.mark.parametrize("state", list(State))
def test_every_state_has_an_answer_that_fits_one_screen(state: State, wish: str) -> None:
    job = cast("JobView", waiting() | {"state": state.value, "desired": wish, "hold_until": AT})
    events = [event_view(i, state.value, f"event {i}") for i in range(9)]
    for view in (job, job_view(state=state.value, desired=wish, slices=[], attempts=[], step=None)):
        lines = why_page(view, events, 80, NOW).splitlines()
        assert any(line.startswith("  Next ") for line in lines)
        assert any(line.startswith("  Retries ") for line in lines) is (
            state is not State.SUCCEEDED
        )
        assert len(lines) <= 24
        assert all(width(line) <= 80 for line in lines), lines
        assert not any("\x1b" in line for line in lines), "a program controls no terminal"


def test_the_command(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.jobs = {"000042": waiting()}
    assert "4th stockout in us-central2-b" in tpujob("why", "000042").out
    assert tpujob("why", "000042", "--json").json["retries_used"] == {"failures": 1, "stockouts": 4}
