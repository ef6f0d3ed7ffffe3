"""Jobs, events, suspects and notifications to and from JSON text, the form in which every store keeps them.

A field that a document lacks gets the record's default. A field that the record does not know is ignored, and dropped
by the next write: a change that must survive an older writer counts SCHEMA_VERSION up. Other versions are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tpujob.domain.events import PAYLOADS, Event
from tpujob.domain.model import SCHEMA_VERSION, Job, Suspect
from tpujob.domain.notifications.model import Message
from tpujob.domain.spec.fields import SpecPart
from tpujob.domain.spec.jobspec import JobSpec
from tpujob.errors import DamagedRecord, StoreError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


Record = TypeVar("Record")


def to_text(record: Job | Event | Suspect | Message) -> str:
    """Return the record as JSON text in ASCII with every field."""
    return _adapter(type(record)).dump_json(record, ensure_ascii=True).decode()


def job_from_text(job_id: str, text: str) -> Job:
    """Return the job in a text of `to_text`. Raise DamagedRecord, with job and field, if the text is no job."""
    try:
        job = _read(Job, job_id, text)
    except StoreError:
        _check_version(job_id, _version(text))  # another version may have other fields
        raise
    _check_version(job_id, job.schema_version)
    return replace(job, spec=shared(job.spec))


def event_from_text(job_id: str, text: str) -> Event:
    """Return the event in a text of `to_text`. Raise DamagedRecord, with job and field, if the text is no event."""
    happened, document = _read(Event, job_id, text), json.loads(text)
    _check_version(job_id, document.get("schema_version"))
    kind = PAYLOADS.get(happened.kind)
    if kind is None:
        return happened
    payload = json.dumps(document.get("payload"))
    return replace(happened, payload=_read(kind, job_id, payload, "payload"))


def _check_version(job_id: str, version: int | None) -> None:
    """Raise DamagedRecord for a schema version that this code cannot read. None: unknown, which is accepted."""
    if version not in (None, SCHEMA_VERSION):
        raise DamagedRecord(
            f"the record of job {job_id} has version {version}, and this tpujob reads version {SCHEMA_VERSION}",
            hint="use the tpujob that wrote it",
        )


def _version(text: str) -> int | None:
    """Return the schema version in a job's text; None: it has none."""
    try:
        value = json.loads(text)["schema_version"]
    except (ValueError, LookupError, TypeError):
        return None
    return value if isinstance(value, int) else None


def suspect_from_text(text: str) -> Suspect:
    """Return the suspect in a text of `to_text`. Raise DamagedRecord, with the field, if it is none."""
    return _read(Suspect, "", text)


def message_from_text(text: str) -> Message:
    """Return the message in a text of `to_text`. Raise DamagedRecord, with the field, if it is none."""
    return _read(Message, "", text)


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _read(kind: type[Record], job_id: str, text: str, *below: str) -> Record:
    try:
        return _adapter(kind).validate_json(text, strict=True, extra="ignore")
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problem = _problem(min(errors, key=lambda item: item["type"] == "missing"), below)
        name = f"the record of job {job_id}" if job_id else "a stored record"
        raise DamagedRecord(f"{name} is damaged: {problem}") from None


#: expected value by pydantic's type of error
_EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
}


def _problem(error: ErrorDetails, below: tuple[str, ...]) -> str:
    """Return the error in words: `slices[0].zone` should be text and is 7."""
    steps = (*below, *error["loc"])
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = path.lstrip(".")
    if error["type"] == "missing":
        return f"`{path}` is missing"
    if error["type"] in ("enum", "literal_error"):
        expected = "one of " + error["ctx"]["expected"].replace("'", "").replace(" or ", ", ")  # pyright: ignore[reportTypedDictNotRequiredAccess]
    else:
        expected = _EXPECTED.get(error["type"], "")
    if not expected:
        return f"`{path}`: {error['msg'].removeprefix('Value error, ')}" if path else error["msg"]
    shown = repr(error["input"])
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f"`{path}` should be {expected} and is {shown}"


# Parts of specs that jobs share --------------------------------------------------------------------------------------


#: maximum number of shared parts; one takes about 1 kB
MAX_SHARED = 4096
_PARTS = ("tpu", "run", "recovery", "watch")

_known: dict[tuple[type[SpecPart], str], SpecPart] = {}
#: the fields of a stored spec, in which every default is filled in
_ALL = set(JobSpec.model_fields)


def shared(spec: JobSpec) -> JobSpec:
    """Return an equal spec that shares its equal parts with other specs, which takes an eighth of the memory."""
    parts = {name: _one(getattr(spec, name)) for name in _PARTS}
    return JobSpec.model_construct(_ALL, **{**dict(spec), **parts})


def _one(part: SpecPart) -> SpecPart:
    if len(_known) >= MAX_SHARED:
        _known.clear()
    return _known.setdefault((type(part), part.model_dump_json()), part)
