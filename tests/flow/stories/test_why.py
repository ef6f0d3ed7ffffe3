"""The page on a running job: what prevents progress, since when, and when the next try is due."""

import json

import pytest

from tests.support.stage import Stage, bad_device
from tpujob.cli.render.job_page import why_page
from tpujob.domain.codec import job_from_text, to_text
from tpujob.domain.lifecycle import PROVEN
from tpujob.domain.model import State


def why(stage: Stage, job_id: str) -> str:
    return why_page(stage.api.get(job_id), stage.api.events(job_id), 80, stage.clock.now())


def test_trouble_is_shown_with_its_time_and_forgotten_when_it_is_over(stage: Stage) -> None:
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
    assert "Trouble   503 the service is unavailable, for " in why(stage, job_id)
    stage.faults.broken.clear()
    stage.step(job_id)
    view = stage.api.get(job_id)
    assert (view["trouble"], view["trouble_since"]) == ("", None)


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
    document = json.loads(to_text(job))
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
    assert ended["physical"][1] == "us-central2-b-h001"
    page = why(stage, job_id)
    assert "Swap      tj-000001-1 was swapped out as bad; kept, at $7.37/h," in page
    assert "machine us-central2-b-h001" in " ".join(page.split())
    stage.until(job_id, lambda j: not j.condemned)
    assert stage.api.get(job_id)["condemned"] == []
    assert "Swap" not in why(stage, job_id)
