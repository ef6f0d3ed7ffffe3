"""Firestore's documents, writes and queries, as plain values and back. Pure; the vendor's messages end here."""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: what a field may hold here
Value = str | int | float | bool | bytes | list[str]
#: field, `==` `<=` or `>`, value
Where = tuple[str, str, Any]

NAME = "__name__"  #: the field of a query that means the document's own id
CHANGED = "changed"  #: the field that the server stamps, in documents that are `stamped`


@dataclass(frozen=True, slots=True)
class Found:
    """A document as it was read."""

    path: str  #: below the root of the database
    fields: Mapping[str, Value]
    updated: Any  #: the vendor's time of its last change, for a precondition

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def changed_us(self) -> int:
        """The time of its last change: microseconds since the epoch, by the database's clock."""
        return microseconds(self.updated)


@dataclass(frozen=True, slots=True)
class Put:
    """Write a document whole."""

    path: str
    fields: Mapping[str, Value | None]  #: None: left out
    stamped: bool = False  #: the server writes its time into the field `changed`


@dataclass(frozen=True, slots=True)
class Remove:
    path: str


def microseconds(time: Any) -> int:
    """The vendor's time, as microseconds since the epoch."""
    return time.seconds * 1_000_000 + time.nanos // 1000


def found(document: Any, root: str) -> Found:
    pb = type(document).pb(document)
    fields = {name: _plain(value) for name, value in pb.fields.items()}
    return Found(pb.name.removeprefix(f"{root}/"), fields, pb.update_time)


def write_of(write: Put | Remove, read: Mapping[str, Found | None], root: str) -> Any:
    """The vendor's write. It succeeds only if the document is as it was read; one that was not read is written
    unconditionally."""
    from google.cloud.firestore_v1.types import Write

    name = f"{root}/{write.path}"
    made: dict[str, Any] = (
        {"delete": name}
        if isinstance(write, Remove)
        else {"update": {"name": name, "fields": _fields(write.fields)}}
    )
    if write.path in read:
        old = read[write.path]
        made["current_document"] = {"update_time": old.updated} if old else {"exists": False}
    if isinstance(write, Put) and write.stamped:
        made["update_transforms"] = [{"field_path": CHANGED, "set_to_server_value": 1}]
    return Write(made)


def query(
    collection: str,
    root: str,
    *,
    where: Sequence[Where] = (),
    order: str = NAME,
    newest_first: bool = False,
    limit: int = 0,
    only: str = "",
    below: str = "",
    everywhere: bool = False,
    after: tuple[Value, str] | None = None,
) -> Any:
    """The vendor's query. `only`: fetch just this field. A `where` on NAME compares ids below the path `below`.
    `everywhere`: all collections of that name, below any document. `after`: begin behind the document that has this
    value of the field `order`, and this path."""
    from google.cloud.firestore_v1.types import StructuredQuery

    direction = "DESCENDING" if newest_first else "ASCENDING"
    made: dict[str, Any] = {
        "from_": [{"collection_id": collection, "all_descendants": everywhere}],
        "order_by": [{"field": {"field_path": order}, "direction": direction}],
    }
    filters = [
        {
            "field_filter": {
                "field": {"field_path": name},
                "op": _OPERATORS[op],
                "value": {"reference_value": f"{root}/{below}/{value}"}
                if name == NAME
                else _vendor(value),
            }
        }
        for name, op, value in where
    ]
    if filters:
        made["where"] = {"composite_filter": {"op": "AND", "filters": filters}}
    if after:
        value, path = after
        made["order_by"].append({"field": {"field_path": NAME}, "direction": direction})
        place = [_vendor(value), {"reference_value": f"{root}/{path}"}]
        made["start_at"] = {"values": place, "before": False}
    if limit:
        made["limit"] = {"value": limit}
    if only:
        made["select"] = {"fields": [{"field_path": only}]}
    return StructuredQuery(made)


_OPERATORS = {"==": "EQUAL", "<=": "LESS_THAN_OR_EQUAL", ">": "GREATER_THAN"}


def _fields(fields: Mapping[str, Value | None]) -> dict[str, Any]:
    return {name: _vendor(value) for name, value in fields.items() if value is not None}


def _vendor(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):  # before int: a bool is one
        return {"boolean_value": value}
    if isinstance(value, int):
        return {"integer_value": value}
    if isinstance(value, float):
        return {"double_value": value}
    if isinstance(value, bytes):
        return {"bytes_value": value}
    if isinstance(value, list):
        return {"array_value": {"values": [_vendor(each) for each in value]}}
    if isinstance(value, Time):
        seconds, us = divmod(value.us, 1_000_000)
        return {"timestamp_value": {"seconds": seconds, "nanos": us * 1000}}
    return {"string_value": value}


@dataclass(frozen=True, slots=True)
class Time:
    """A time to compare a server's stamp with."""

    us: int  #: microseconds since the epoch


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)
