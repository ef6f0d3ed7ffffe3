"""Jobs, events and suspects to and from JSON documents, the form in which every store keeps them.

The fields and their types are read from the records themselves, once, so a new field needs nothing here. A document
lacks a field that its writer did not know: the record's default stands in. A field that the record does not know is
ignored, and dropped by the next write; a change that must survive an older writer raises the schema version by two,
and is then refused here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from tpujob.domain.model import Event, Job, Json, Suspect
from tpujob.errors import StoreError

SCHEMA_VERSION = 1  #: of the documents written here; one newer is read, two newer is refused

Convert = Callable[[Any], Any]
Document = dict[str, Json]


def to_json(record: Job | Event | Suspect) -> Document:
    """The record as a document of plain JSON types, every field named."""
    return _writer(type(record))(record)


def job_from_json(document: Json) -> Job:
    """The job that `to_json` was given. Raises StoreError, naming the field, on anything that no job can be."""
    if isinstance(document, dict):
        document = cast("Document", document)
        version = document.get("schema_version", SCHEMA_VERSION)
        if isinstance(version, int) and version > SCHEMA_VERSION:
            document = {**_readable(document, version), "schema_version": SCHEMA_VERSION}
    return _read(Job, document)


def event_from_json(document: Json) -> Event:
    """The event that `to_json` was given. Raises StoreError, naming the field."""
    return _read(Event, document)


def suspect_from_json(document: Json) -> Suspect:
    """The suspect that `to_json` was given. Raises StoreError, naming the field."""
    return _read(Suspect, document)


def _readable(document: Document, version: int) -> Document:
    if version >= SCHEMA_VERSION + 2:
        raise StoreError(
            f"{_name(document)} was written by a newer tpujob: its schema is {version}, and this one reads up to "
            f"{SCHEMA_VERSION + 1}",
            hint="upgrade tpujob",
        )
    return document


def _read(cls: type, document: Json) -> Any:
    try:
        return _reader(cls)(document)
    except _Wrong as wrong:
        raise StoreError(f"{_name(document)} is damaged: {wrong}") from None


def _name(document: Json) -> str:
    found = cast("Document", document).get("id") if isinstance(document, dict) else None
    return f"the record of job {found}" if isinstance(found, str) else "a stored record"


class _Wrong(Exception):
    """What was expected, what was there, and where; the path grows from the inside out."""

    def __init__(self, expected: str, value: object, path: str = "") -> None:
        self.expected, self.value, self.path = expected, value, path

    def under(self, step: str) -> _Wrong:
        dot = "." if self.path and not self.path.startswith("[") else ""
        return _Wrong(self.expected, self.value, f"{step}{dot}{self.path}")

    def __str__(self) -> str:
        shown = "missing" if self.value is MISSING else repr(self.value)
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        return f"`{self.path}` should be {self.expected} and is {shown}"


# Reading -------------------------------------------------------------------------------------------------------------

_SCALARS: dict[type, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


@cache
def _reader(kind: Any) -> Convert:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return _same
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if origin in (Union, types.UnionType):
        inner = _reader(_unwrapped(kind))
        return lambda value: None if value is None else inner(value)
    if origin is Literal:
        return _choice_reader({choice: choice for choice in args})
    if origin is tuple:
        return _tuple_reader(_reader(args[0]))
    if origin is Mapping:
        return _mapping_reader(_reader(args[1]))
    if is_dataclass(kind):
        return _record_reader(cast("type", kind))
    assert issubclass(kind, Enum), f"no JSON form for {kind}"
    return _choice_reader({member.value: member for member in kind})


def _same(value: Any) -> Any:
    return value


def _scalar_reader(kind: type) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is kind:  # exactly: a bool is an int, and must not pass for one
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _Wrong(_SCALARS[kind], value)

    return read


def _choice_reader(choices: Mapping[str, Any]) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not str or value not in choices:
            raise _Wrong(f"one of {', '.join(choices)}", value)
        return choices[value]

    return read


def _tuple_reader(inner: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise _Wrong("a list", value)
        found: list[Any] = []
        try:
            for item in cast("list[Any]", value):
                found.append(inner(item))
        except _Wrong as wrong:
            raise wrong.under(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _mapping_reader(inner: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _Wrong("an object", value)
        given = cast("Document", value)
        found: Document = {}
        key = ""
        try:
            for key, item in given.items():
                found[key] = inner(item)
        except _Wrong as wrong:
            raise wrong.under(f"[{key!r}]") from None
        return found

    return read


def _record_reader(cls: type) -> Convert:
    hints = get_type_hints(cls)
    plan = [(f.name, *_shortcut(hints[f.name]), _reader(hints[f.name])) for f in fields(cls)]
    required = [
        f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
    ]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _Wrong("an object", value)
        given = cast("Document", value)
        found: Document = {}
        name = ""
        try:
            for name, exact, nullable, convert in plan:
                item = given.get(name, MISSING)
                if type(item) is exact or (nullable and item is None):
                    found[name] = item
                elif item is not MISSING:
                    found[name] = convert(item)
        except _Wrong as wrong:
            raise wrong.under(name) from None
        for name in required:
            if name not in found:
                raise _Wrong("there", MISSING, name)
        return cls(**found)

    return read


def _shortcut(kind: Any) -> tuple[type | None, bool]:
    """The exact type that needs no conversion, if any, and whether None is allowed: a call less for most fields."""
    inner = _unwrapped(kind)
    return (inner if inner in _SCALARS else None), inner is not kind


# Writing -------------------------------------------------------------------------------------------------------------


@cache
def _writer(kind: Any) -> Convert:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = _writer(_unwrapped(kind))
        return _same if inner is _same else lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _writer(args[0])
        return list if item is _same else lambda value: [item(each) for each in value]
    if origin is Mapping:
        return dict
    if is_dataclass(kind):
        return _record_writer(cast("type", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: value.value
    return _same


def _record_writer(cls: type) -> Convert:
    hints = get_type_hints(cls)
    plan = [(f.name, _writer(hints[f.name])) for f in fields(cls)]
    return lambda record: {
        name: getattr(record, name) if convert is _same else convert(getattr(record, name))
        for name, convert in plan
    }


def _unwrapped(kind: Any) -> Any:
    """X of `X | None`, the only union that a record has; any other type as it is."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    (inner,) = (each for each in get_args(kind) if each is not types.NoneType)
    return inner
