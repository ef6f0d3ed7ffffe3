"""Views for an operator: machines under suspicion, and records that do not add up."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.records import accusation
from tests.support.stage import Stage
from tpujob.domain.failures.host_reputation import THRESHOLD
from tpujob.errors import BadRequest, NotFound


def accuse(stage: Stage, machine: str, weight: float, owner: str) -> None:
    made = accusation(f"{machine}:{owner}", owner=owner, weight=weight, at=stage.clock.now())
    stage.store.reputation.accuse([machine], made)


# Machines ------------------------------------------------------------------------------------------------------------


def test_machines_are_shown_with_their_score_as_it_has_faded(stage: Stage) -> None:
    for name, weight in (("a", 0.4), ("b", 1.0), ("c", THRESHOLD / 4)):
        accuse(stage, name, weight, "uid:1")
        accuse(stage, name, weight, "uid:2")
    stage.api.pin_host("d", "bad")
    hosts = stage.api.hosts()
    assert [(h["physical"], h["refused"]) for h in hosts] == [
        ("b", True),
        ("a", True),
        ("d", True),
        ("c", False),
    ], "the worst first"
    stage.clock.sleep(14 * 86400)
    faded = {h["physical"]: (h["score"], h["refused"]) for h in stage.api.hosts()}
    assert faded["b"] == (0.5, False)
    assert faded["a"] == (0.2, False)
    assert faded["d"] == (0.0, True), "a person's word does not fade"


def test_a_persons_word_counts_until_it_is_taken_back(stage: Stage) -> None:
    accuse(stage, "a", 2.0, "uid:1")
    accuse(stage, "a", 2.0, "uid:2")
    assert stage.api.pin_host("a", "good")["refused"] is False
    assert stage.api.pin_host("a", "")["refused"] is True
    assert stage.api.pin_host("never seen", "")["pinned"] == ""
    assert stage.api.pin_host("b", "good")["pinned"] == "good"
    assert stage.api.pin_host("b", "")["pinned"] == ""
    assert [h["physical"] for h in stage.api.hosts()] == ["a"], "nothing is held against others"
    stage.api.clear_host("a")
    assert stage.api.hosts() == []
    with pytest.raises(NotFound, match="is neither suspected nor pinned"):
        stage.api.clear_host("a")


@pytest.mark.parametrize(
    ("name", "verdict"), [("", "bad"), (" ", "bad"), ("a\n", "bad"), ("x" * 200, "bad"), ("a", "?")]
)
def test_an_invalid_pin_is_refused(stage: Stage, name: str, verdict: str) -> None:
    with pytest.raises(BadRequest, match=r"is not the name of a machine|is pinned as `good`"):
        stage.api.pin_host(name, verdict)
    assert stage.api.hosts() == []


# Records -------------------------------------------------------------------------------------------------------------


def test_jobs_that_went_through_everything_break_no_rule(stage: Stage) -> None:
    done = stage.started()
    stage.cloud.vanish()  # the slice is gone: another one
    stage.running(done, attempt=2)
    stage.succeed(done)
    stage.faults.refuse_create = [("STOCKOUT", "There is no more capacity in the zone")] * 25
    waits = stage.create(name="waits")
    stage.until(waits, lambda j: j.retries_used.get("stockouts") == 23, limit=1500)
    assert len(stage.job(waits).slices) < 23, "old refusals are forgotten"
    assert stage.api.fsck() == []


def test_a_record_changed_by_hand_is_reported(stage: Stage, tmp_path: Path) -> None:
    job_id = stage.started()
    job = stage.job(job_id)
    spoilt = replace(job, retries_used={"failures": 99})
    stage.store.commit(spoilt, None, expected_version=job.version, op_id="x", lease=None)
    texts = [broken["text"] for broken in stage.api.fsck()]
    assert "99 failures were spent of 3" in texts
    assert any("has events" in text for text in texts), "a version without an event"
    with sqlite3.connect(tmp_path / "tpujob.db") as db:
        db.execute("UPDATE events SET document = replace(document, 'endpoints', 'endpunkte')")
    db.close()
    texts = [broken["text"] for broken in stage.api.fsck()]
    assert any("its events cannot be read" in text and "payload" in text for text in texts)
    with sqlite3.connect(tmp_path / "tpujob.db") as db:
        db.execute("UPDATE events SET document = '{' WHERE seq = 2")
    db.close()
    texts = [broken["text"] for broken in stage.api.fsck()]
    assert any("its events cannot be read" in text for text in texts)
