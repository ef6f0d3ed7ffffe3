"""Golden texts of `tpujob why` at 80 columns. If one differs and the new one reads better, replace it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Tpujob
from tests.cli.test_render import same
from tests.web.scripted import AT, ScriptedJobs, attempt_view, event_view, job_view, slice_view
from tpujob.cli import render
from tpujob.cli.text import clean, seconds, width
from tpujob.cli.why import why_page
from tpujob.domain.model import State
from tpujob.ports import JobView

NOW = (seconds(AT) or 0) + 900
SPEC = {"name": "digits", "recovery": {"preemptions": 100, "failures": 3}}
CRASHED = attempt_view(
    1,
    ended_at="2026-01-02T03:14:05.000Z",
    outcome="failed",
    cause="TPU_BUSY",
    host=1,
    message="attempt 1 ended, TPU_BUSY: host 1: another process holds the TPU (exit code 134)",
    evidence=[
        "host 1: Couldn't open iommu group /dev/vfio/0: \x1b[31mDevice or resource busy\x1b[0m",
        "host 0: ended too: exit code 76",
    ],
    step=480,
    checkpoint=400,
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


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
        message="waiting 360 s, then asking for another slice (after STOCKOUT)",
        usd_per_hour=0.0,
        wake_at="2026-01-02T03:24:00.000Z",
        spent={"failures": 1, "stockouts": 4},
        spec=SPEC,
        progress_at=None,
        slices=[
            slice_view("tj-000042-1", gone_at=AT, reason="attempt 1 ended, TPU_BUSY"),
            *(refused(k, f"2026-01-02T03:{10 + k}:00.000Z") for k in (2, 3, 4, 5)),
        ],
        attempts=[CRASHED],
    )


def test_a_job_that_waits_for_capacity() -> None:
    events = [event_view(1, "queued", "waiting 360 s, then asking for another slice")]
    same(
        why_page(waiting(), events, 80, NOW),
        """
Job 000042  digits  queued since 03:18:00, 1m05s

  Now       waiting 360 s, then asking for another slice (after STOCKOUT)
  Waiting   4 stockouts in us-central2-b since 03:12:00, 7m05s
  Told      no slice in us-central2-b, STOCKOUT: There is no more capacity in
            the zone
  Progress  [========  ] 80%  step 480 of 600  loss 0.01234  checkpoint 400
  Last end  attempt 1: failed TPU_BUSY, host 1, 5m00s ago: host 1: another
            process holds the TPU (exit code 134)
            | host 1: Couldn't open iommu group /dev/vfio/0: Device or resource
              busy
            | host 0: ended too: exit code 76
  Budgets   preemptions: 0 used, 100 left; failures: 1 used, 2 left
  Cost      $0.00/h now, $0.12 so far
  Next      in 4m55s, at 03:24:00: it asks for another slice and goes on from
            checkpoint 400

Lately
  03:04:05  queued        waiting 360 s, then asking for another slice
""",
    )


def test_a_program_that_is_started_again_after_a_crash() -> None:
    job = job_view(
        state="preparing",
        message=CRASHED["message"] + "; starting again on the same slice in 20 s",
        wake_at="2026-01-02T03:19:25.000Z",
        spent={"failures": 1},
        spec=SPEC,
        step=None,
        progress_at=None,
        attempt=2,
        attempts=[CRASHED, attempt_view(2)],
    )
    same(
        why_page(job, [], 80, NOW),
        """
Job 000042  digits  preparing since 03:04:05, 15m00s

  Now       attempt 1 ended, TPU_BUSY: host 1: another process holds the TPU
            (exit code 134); starting again on the same slice in 20 s
  Last end  attempt 1: failed TPU_BUSY, host 1, 5m00s ago
            | host 1: Couldn't open iommu group /dev/vfio/0: Device or resource
              busy
            | host 0: ended too: exit code 76
  Budgets   preemptions: 0 used, 100 left; failures: 1 used, 2 left
  Cost      $7.37/h now, $0.12 so far
  Next      in 20s, at 03:19:25: the program is started again on the same slice
""",
    )


def test_a_running_job_that_makes_no_step_while_the_cloud_does_not_answer() -> None:
    job = job_view(
        message="attempt 1 runs on 2 hosts; 503 the service is unavailable",
        trouble="503 the service is unavailable",
        trouble_since="2026-01-02T03:10:00.000Z",
        spec=SPEC,
    )
    same(
        why_page(job, [], 80, NOW),
        """
Job 000042  digits  running since 03:04:05, 15m00s

  Now       attempt 1 runs on 2 hosts
  Trouble   503 the service is unavailable, since 03:10:00; it is tried again
  Progress  [========  ] 80%  step 480 of 600  loss 0.01234  checkpoint 400
  Stuck     no new step for 15m00s
  Budgets   preemptions: 0 used, 100 left; failures: 0 used, 3 left
  Cost      $7.37/h now, $0.12 so far
  Next      it succeeds when every host exits with 0; if the slice is preempted,
            it gets another and goes on from its last checkpoint
""",
    )


@pytest.mark.parametrize("wish", ["run", "cancel", "release", "clean"])
@pytest.mark.parametrize("state", list(State))
def test_every_state_has_an_answer_that_fits_one_screen(state: State, wish: str) -> None:
    job = waiting() | {"state": state.value, "wish": wish, "hold_until": AT}
    events = [event_view(i, state.value, f"event {i}") for i in range(9)]
    for one in (job, job_view(state=state.value, wish=wish, slices=[], attempts=[], step=None)):
        lines = why_page(one, events, 80, NOW).splitlines()  # type: ignore[arg-type]
        assert any(line.startswith("  Next ") for line in lines)
        assert len(lines) <= 24
        assert all(width(line) <= 80 for line in lines), lines


def test_what_a_program_wrote_does_nothing_to_the_terminal() -> None:
    for text in (why_page(waiting(), [], 80, NOW), render.job_page(waiting(), [], 80, NOW)):
        assert text == clean(text.replace("\n", "|")).replace("|", "\n") or "\x1b" not in text
        assert "| host 1: Couldn't open iommu group /dev/vfio/0: Device or resource" in text


def test_the_command(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.jobs = {"000042": waiting()}
    assert "4 stockouts in us-central2-b" in tpujob("why", "000042").out
    assert tpujob("why", "000042", "--json").json["spent"] == {"failures": 1, "stockouts": 4}
