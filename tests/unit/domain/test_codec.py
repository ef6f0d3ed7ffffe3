"""Documents of jobs and events: whatever is stored comes back the same, and what cannot be a job is named."""

import contextlib
import copy
import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import SPEC, V6E, a_job
from tpujob.domain.codec import event_from_text, job_from_text, to_text
from tpujob.domain.events import PAYLOADS, Event, EventKind
from tpujob.domain.model import SCHEMA_VERSION, Attempt, Job, Progress, State
from tpujob.domain.spec import JobSpec
from tpujob.errors import StoreError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that a record's field may have, as the records declare them."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        values = {f.name: anything(hints[f.name]) for f in fields(kind)}
        if kind is Job:
            values["schema_version"] = st.just(SCHEMA_VERSION)
        return st.builds(kind, **values)
    if kind is Any:
        return JSON
    if kind is JobSpec:
        return st.sampled_from([SPEC, V6E])
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if origin is Mapping:
        return st.dictionaries(st.text(), anything(args[1]), max_size=3)
    if origin is tuple:
        return st.lists(anything(args[0]), max_size=2).map(tuple)
    if origin in (Union, types.UnionType):
        return st.none() | anything(next(a for a in args if a is not types.NoneType))
    return st.from_type(kind)


def to_json(record: Job | Event) -> Any:
    return json.loads(to_text(record))


def read(document: Any) -> Job:
    return job_from_text("000042", json.dumps(document))


def an_event(kind: EventKind) -> st.SearchStrategy[Event]:
    payload = anything(PAYLOADS[kind]) if kind in PAYLOADS else st.none()
    return st.builds(
        Event,
        kind=st.just(kind),
        at=anything(float),
        state=anything(State),
        text=st.text(),
        payload=payload,
        seq=st.integers(),
    )


JOB = replace(
    a_job(),
    attempts=(Attempt(1, "tj-000042-1", 4.0, progress=Progress(step=7, metrics={"a": 0.5})),),
    retries_used={"preemptions": 1},
)


@settings(max_examples=60)
@given(anything(Job))
def test_a_job_survives_encoding_and_decoding(job: Job) -> None:
    assert job_from_text(job.id, to_text(job)) == job


@settings(max_examples=60)
@given(st.sampled_from(EventKind).flatmap(an_event))
def test_an_event_survives_encoding_and_decoding(event: Event) -> None:
    assert event_from_text("000042", to_text(event)) == event


def test_what_the_specs_of_several_jobs_have_in_common_is_in_memory_once() -> None:
    text = to_text(JOB)
    first, second = job_from_text("000042", text), job_from_text("000042", text)
    assert second.spec == JOB.spec
    assert to_text(second) == text
    for part in ("tpu", "run", "recovery", "watch"):
        assert getattr(first.spec, part) is getattr(second.spec, part), f"two of {part}"
    other = job_from_text("000042", to_text(replace(JOB, spec=V6E)))
    assert other.spec == V6E


def test_a_field_that_a_document_lacks_has_its_default() -> None:
    document = to_json(replace(JOB, retries_used={}, message=""))
    for name in ("retries_used", "message", "wipe_checkpoints", "schema_version"):
        del document[name]
    assert read(document) == replace(JOB, retries_used={}, message="")


def test_an_unknown_field_is_ignored() -> None:
    document = {**to_json(JOB), "mood": "fine"}
    document["slices"][0]["colour"] = "red"
    assert read(document) == JOB


def test_a_record_of_another_version_is_refused_by_name_whatever_its_fields_are() -> None:
    text = "the record of job 000042 has version 7, and this tpujob reads version 1"
    for document in (to_json(JOB), {"state": ["new"]}):
        with pytest.raises(StoreError, match=text) as raised:
            read({**document, "schema_version": 7})
        assert raised.value.hint == "use the tpujob that wrote it"
    event = to_json(Event(EventKind.CANCEL_REQUESTED, 1.0, State.RUNNING, "by ada"))
    with pytest.raises(StoreError, match=text):
        event_from_text("000042", json.dumps({**event, "schema_version": 7}))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["name"], 7, "`name` should be text and is 7"),
        (["name"], None, "`name` should be text and is None"),
        (["version"], True, "`version` should be a whole number and is True"),
        (["version"], 1.5, "`version` should be a whole number and is 1.5"),
        (["stopped"], 1, "`stopped` should be true or false and is 1"),
        (["wake"], "soon", "`wake` should be a number and is 'soon'"),
        (["state"], "lost", "`state` should be one of queued, provisioning, .* and is 'lost'"),
        (["state"], [], r"`state` should be one of .* and is \[\]"),
        (["slices"], {}, "`slices` should be a list and is {}"),
        (["slices", 0], "tj", r"`slices\[0\]` should be an object and is 'tj'"),
        (
            ["edges"],
            [{"job": "000041", "on": "free"}],
            r"`edges\[0\].on` should be one of success, end, failure, start and",
        ),
        (
            ["slices", 0, "endpoints", 1, "host"],
            "1",
            r"`slices\[0\].endpoints\[1\].host` should be a whole",
        ),
        (["attempts", 0, "progress", "metrics", "a"], "x", r"metrics.a` should be a number"),
        (["spec"], "x" * 99, "`spec` should be an object and is 'xxx.*[.]{3}$"),
        (["spec", "tpu", "type"], "v9-3", "`spec.tpu.type`: v9-3: no such type"),
        (["schema_version"], "1", "`schema_version` should be a whole number"),
    ],
)
def test_an_invalid_field_is_named(path: list[Any], value: object, message: str) -> None:
    document = copy.deepcopy(to_json(JOB))
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(StoreError, match=f"the record of job 000042 is damaged: .*{message}"):
        read(document)


def test_a_whole_number_is_a_time_too() -> None:
    """JSON of other writers does not keep them apart."""
    wake = read({**to_json(JOB), "wake": 5}).wake
    assert (wake, type(wake)) == (5.0, float)


def test_a_missing_field_is_named() -> None:
    document = to_json(JOB)
    del document["slices"][0]["zone"]
    with pytest.raises(StoreError, match=r"`slices\[0\].zone` is missing"):
        read(document)


@settings(max_examples=100)
@given(JSON)
def test_any_other_document_is_one_clear_error(document: Any) -> None:
    for from_text in (job_from_text, event_from_text):
        with pytest.raises(StoreError, match="the record of job 000042 is damaged"):
            from_text("000042", json.dumps(document))


def test_a_text_that_is_no_json_is_one_clear_error() -> None:
    with pytest.raises(StoreError, match="the record of job 000042 is damaged: Invalid JSON"):
        job_from_text("000042", '{"id": ')


@settings(max_examples=150)
@given(st.data())
def test_junk_anywhere_in_a_document_is_one_clear_error(data: st.DataObject) -> None:
    document: Any = copy.deepcopy(to_json(JOB))
    place, step = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(place[step], (dict, list)) and place[step] and data.draw(st.booleans()):
        place = place[step]
        steps = sorted(place) if isinstance(place, dict) else range(len(place))
        step = data.draw(st.sampled_from(steps))
    place[step] = data.draw(JSON)
    with contextlib.suppress(StoreError):
        assert isinstance(read(document), Job)
