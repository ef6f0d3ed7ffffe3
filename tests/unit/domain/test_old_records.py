"""Records of older schema versions, as their code wrote them: they are read, and their jobs go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import ENDPOINTS
from tests.support.stage import Stage
from tpujob.domain import invariants
from tpujob.domain.codec import event_from_text, job_from_text, to_json, to_text
from tpujob.domain.decide import decide
from tpujob.domain.events import Event, EventKind
from tpujob.domain.failures.disclosure import ended_by, in_full, job_in_full
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import SCHEMA_VERSION, Job, State
from tpujob.domain.observations import Absent, Observation, Present, SliceState, Unknown
from tpujob.errors import StoreError

LIVES: dict[str, Any] = {
    life["job"]["name"]: life
    for life in json.loads(Path(__file__).with_name("records_v1.json").read_text())
}
#: kinds that version 1 did not have
NEWER = {
    EventKind.SLICE_SUSPENDING,
    EventKind.WATCHED,
    EventKind.REPORTS_IGNORED,
    EventKind.BUDGET_WARNED,
    EventKind.BUDGET_CHANGED,
    EventKind.GROUP_EXTENDED,
    EventKind.GROUP_REOPENED,
    EventKind.COPY_STARTED,
    EventKind.COPY_ADVANCED,
    EventKind.COPY_FINISHED,
    EventKind.COPY_REFUSED,
    EventKind.QUEUE_HELD,
    EventKind.QUEUE_RELEASED,
    EventKind.QUEUE_MOVED,
    EventKind.REQUEUE_REQUESTED,
    EventKind.SLICE_CREATING,
    EventKind.SLICE_HANDED_ON,
    EventKind.SLICE_KEPT,
    EventKind.SLICE_RECEIVED,
}
LOOKS = (Absent(), Unknown("503"), *(Present(state, ENDPOINTS) for state in SliceState))


def read(name: str) -> tuple[Job, list[Event]]:
    job = job_from_text("000042", json.dumps(LIVES[name]["job"]))
    return job, [event_from_text(job.id, json.dumps(event)) for event in LIVES[name]["events"]]


def test_the_records_have_every_kind_of_event() -> None:
    kinds = {event.kind for name in LIVES for event in read(name)[1]}
    assert kinds == {*EventKind} - NEWER


@pytest.mark.parametrize("name", LIVES)
def test_the_events_of_an_old_record_lead_to_it(name: str) -> None:
    job, events = read(name)
    assert job.schema_version == SCHEMA_VERSION
    assert invariants.of_history(invariants.first_record(job), events, job) == []
    assert invariants.of_job(job) == []


@pytest.mark.parametrize("name", LIVES)
def test_the_job_of_an_old_record_goes_on(name: str) -> None:
    job, _ = read(name)
    for look in LOOKS:
        seen = Observation({s.name: look for s in job.slices}, readable_for=100.0)
        going, now = job, job.state_since
        for _ in range(20):
            now += 60.0
            decision = decide(going, seen, now)
            going = apply(going, decision.event) if decision.event else going
            assert invariants.of_job(going) == []
    assert going.state in State


def test_the_text_of_errors_in_a_record_of_version_6_is_read_by_its_owner_alone(
    tmp_path: Path,
) -> None:
    """It was in every sentence about an end. What is left to others is the cause."""
    stage = Stage(tmp_path)
    job_id = stage.create(recovery={"failures": 1})
    for attempt in (1, 2):
        stage.running(job_id, attempt=attempt)
        stage.finish(job_id, 1, 1)
        lines = ("Traceback (most recent call last):", f"ValueError: secret {attempt}")
        stage.last_words(job_id, 0, *lines)
        stage.until(job_id, lambda job, n=attempt: job.attempts[n - 1].ended_at is not None)
    job = stage.until(job_id, State.FAILED)

    full = to_json(job_in_full(job)) | {"schema_version": 6}
    for each in full["attempts"]:
        del each["detail"]
    told: list[Event] = []
    for event in stage.store.events(job_id):
        document = to_json(replace(event, text=in_full(event.text, ended_by(job, event.at))))
        del document["schema_version"]
        if end := (document["payload"] or {}).get("end"):
            end["message"] = end.pop("detail")
        for n in (1, 2):
            ends = document["text"].startswith(f"attempt {n} ended, CRASH")
            assert (f"secret {n}" in document["text"]) is ends, "each sentence has its own error"
        told.append(event_from_text(job_id, json.dumps(document)))
    read = job_from_text(job_id, json.dumps(full))

    shown = [read.message, *(s.delete_reason for s in read.slices), *(e.text for e in told)]
    shown += [a.message for a in read.attempts]
    assert not [text for text in shown if "secret" in text]
    assert read.message == "attempt 2 ended, CRASH: an older version recorded why"
    owned = job_in_full(read)
    assert [a.message for a in owned.attempts] == [a.detail for a in job.attempts]
    assert owned.message == "attempt 2 ended, CRASH: ValueError: secret 2 (host 0: exit code 1)"
    assert invariants.of_history(invariants.first_record(read), told, read) == []
    assert job_from_text(job_id, to_text(read)) == read, "it is of this version now"


@pytest.mark.parametrize("damage", [{"state": 7}, {"attempts": [None]}, {"slices": "none"}])
def test_a_damaged_old_record_is_named(damage: dict[str, Any]) -> None:
    text = json.dumps({**LIVES["llama"]["job"], **damage})
    with pytest.raises(StoreError, match="the record of job 000042 is damaged"):
        job_from_text("000042", text)


def test_a_record_of_a_newer_version_is_refused_whatever_its_fields_are() -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION + 2, "state": ["new"]})
    with pytest.raises(StoreError, match="written by a newer tpujob"):
        job_from_text("000042", text)
