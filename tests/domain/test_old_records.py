"""Records of schema version 1, as the code of that version wrote them: they are read, and their jobs go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import ENDPOINTS
from tpujob.domain import invariants
from tpujob.domain.codec import event_from_text, job_from_text
from tpujob.domain.decide import decide
from tpujob.domain.events import Event, EventKind
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import SCHEMA_VERSION, Job, State
from tpujob.domain.observations import Absent, Present, Seen, SliceState, Unknown
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
    EventKind.COPY_STARTED,
    EventKind.COPY_ADVANCED,
    EventKind.COPY_FINISHED,
    EventKind.COPY_REFUSED,
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
        seen = Seen({s.name: look for s in job.slices}, readable_for=100.0)
        going, now = job, job.state_since
        for _ in range(20):
            now += 60.0
            decision = decide(going, seen, now)
            going = apply(going, decision.event) if decision.event else going
            assert invariants.of_job(going) == []
    assert going.state in State


@pytest.mark.parametrize("damage", [{"state": 7}, {"attempts": [None]}, {"slices": "none"}])
def test_a_damaged_old_record_is_named(damage: dict[str, Any]) -> None:
    text = json.dumps({**LIVES["llama"]["job"], **damage})
    with pytest.raises(StoreError, match="the record of job 000042 is damaged"):
        job_from_text("000042", text)


def test_a_record_of_a_newer_version_is_refused_whatever_its_fields_are() -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION + 2, "state": ["new"]})
    with pytest.raises(StoreError, match="written by a newer tpujob"):
        job_from_text("000042", text)
