"""What a user is told of a job while it is going on: what is in the way, since when, and when the next try is due."""

from __future__ import annotations

import json

import pytest

from tests.support.stage import Stage, bad_device
from tpujob.cli.render.job_page import why_page
from tpujob.domain.codec import job_from_text, to_json, to_text
from tpujob.domain.lifecycle import PROVEN
from tpujob.domain.model import State
from tpujob.domain.text import seconds


def why(stage: Stage, job_id: str) -> str:
    return why_page(stage.api.get(job_id), stage.api.events(job_id), 80, stage.clock.now())


def test_trouble_is_shown_with_its_time_and_forgotten_when_it_is_over(
    stage: Stage,
) -> None:
    job_id = stage.started()
    assert stage.api.get(job_id)["trouble"] == ""
    stage.faults.broken |= {"look", "list"}
    stage.step(job_id)
    since = stage.api.get(job_id)["trouble_since"]
    for _ in range(5):
        stage.step(job_id)
    view = stage.api.get(job_id)
    assert "503" in view["trouble"]
    assert view["trouble_since"] == since
    assert "Trouble   503 the service is unavailable, since" in why(stage, job_id)
    stage.faults.broken.clear()
    stage.step(job_id)
    view = stage.api.get(job_id)
    assert (view["trouble"], view["trouble_since"]) == ("", None)


def test_a_wait_for_capacity_is_counted_and_says_when_it_ends(stage: Stage) -> None:
    stage.faults.refuse_create = [("STOCKOUT", "There is no more capacity in the zone")] * 9
    job_id = stage.create()
    stage.until(job_id, lambda j: j.spent.get("stockouts") == 4 and j.state is State.QUEUED)
    view = stage.api.get(job_id)
    waits, coming = view.get("capacity"), view.get("next")
    assert waits
    assert coming
    assert (waits["cause"], waits["zone"], waits["refusals"]) == ("STOCKOUT", "us-central2-b", 4)
    assert "There is no more capacity in the zone" in waits["said"]
    assert (coming["action"], coming["at"]) == ("request_slice", waits["first_at"])
    assert (seconds(coming["at"]) or 0) > stage.clock.now()
    assert view["spent"] == {"stockouts": 4}
    page = why(stage, job_id)
    assert "Waiting   4th stockout in us-central2-b since" in page
    assert "Next      in " in page
    stage.faults.refuse_create.clear()
    stage.running(job_id)
    assert "stockout" not in why(stage, job_id).partition("Recent events")[0]


def test_the_age_of_the_newest_step_is_known(stage: Stage) -> None:
    job_id = stage.create()
    job = stage.running(job_id)
    assert job.attempt is not None
    assert seconds(stage.api.get(job_id)["progress_at"]) == job.attempt.running_at
    stage.report(job_id, 0, step=7, steps=100)
    stage.step(job_id)
    stage.step(job_id)
    moved = seconds(stage.api.get(job_id)["progress_at"])
    assert moved is not None
    assert moved > (job.attempt.running_at or 0)
    for _ in range(60):
        stage.step(job_id)
        stage.report(job_id, 0, step=7)
        stage.report(job_id, 1)
    assert seconds(stage.api.get(job_id)["progress_at"]) == moved
    said = next(line for line in why(stage, job_id).splitlines() if "Stuck" in line)
    assert said.startswith("  Stuck     no new step for")
    assert said.endswith("; stall at 15m00s")


def test_many_attempts_do_not_fill_the_record_with_evidence(stage: Stage) -> None:
    job_id = stage.create(recovery={"failures": 100})
    for number in range(1, PROVEN + 4):
        job = stage.until(
            job_id, lambda j, n=number: j.state is State.RUNNING and len(j.attempts) == n
        )
        stage.finish(job_id, 1, 0)
        stage.last_words(job_id, 0, f"ValueError: {number}")
    job = stage.until(job_id, lambda j: len(j.attempts) == PROVEN + 4)
    proven = [a.number for a in job.attempts if a.evidence]
    assert proven == list(range(4, PROVEN + 4))
    document = to_json(job)
    assert job_from_text(job.id, to_text(job)) == job
    for attempt in document["attempts"]:
        del attempt["evidence"]
    older = job_from_text(job.id, json.dumps(document))
    assert all(a.evidence == () for a in older.attempts), "records of an older version are read"


def test_a_swap_is_shown_with_its_verdict_and_what_is_billed_meanwhile(stage: Stage) -> None:
    job_id = stage.started()
    bad_device(stage, job_id)
    stage.until(job_id, State.PROVISIONING)
    (listed,) = stage.api.list()["rows"]
    assert listed["condemned"] == ["tj-000001-1"]
    assert listed["usd_per_hour"] == pytest.approx(8 * 0.9215, abs=1e-3), "it is billed still"
    view = stage.api.get(job_id)
    assert [s["role"] for s in view["slices"]] == ["condemned", "serving"]
    (ended,) = [a for a in view["attempts"] if a["ended_at"]]
    verdict = ended["verdict"]
    assert verdict is not None
    assert (verdict["step"], verdict["host"], verdict["blame"]) == (41, 1, "device")
    assert ended["physical"][1] == "us-central2-b-01"
    page = why(stage, job_id)
    assert "Swap      tj-000001-1 was swapped out as bad; kept, at $7.37/h," in page
    assert "machine us-central2-b-01" in " ".join(page.split())
    stage.until(job_id, lambda j: not j.condemned)
    assert stage.api.get(job_id)["condemned"] == []
    assert "Swap" not in why(stage, job_id)


def test_the_time_at_which_a_program_counts_as_hung_is_shown(stage: Stage) -> None:
    """One that tells its phases gets longer for its first step; `stall: 0s` means never."""
    job_id = stage.create(recovery={"stall": "20m"})
    assert stage.api.get(job_id)["stall_s"] is None, "nothing runs"
    stage.running(job_id)
    for host in range(2):
        stage.report(job_id, host, program_phase="compile")
    stage.step(job_id)
    stage.step(job_id)
    assert stage.api.get(job_id)["stall_s"] == 40 * 60
    for host in range(2):
        stage.report(job_id, host, program_phase="train", step=1)
    stage.step(job_id)
    stage.step(job_id)
    assert stage.api.get(job_id)["stall_s"] == 20 * 60
    never = stage.started(name="never", recovery={"stall": "0s"})
    assert stage.api.get(never)["stall_s"] is None
