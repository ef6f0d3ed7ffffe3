"""What the store's documents look like in Firestore: paths, fields, and how a record goes in and comes out. Pure.

    jobs/000042                     the record as JSON text, and the fields that queries ask for
    jobs/000042/events/000000007    one event, as JSON text, by the version that it made
    leases/000042                   who may act on the job
    keys/<digest>                   the job that was created under an idempotency key
    suspects/<digest>  accusations/<digest>  zones/<zone>  counters/jobs
    counters/store                  what tells this store from every other one

The text is one field without an index (`deploy/firestore.indexes.json`): indexed, each host of each slice would count
against the limit of index entries, and cost on every write. A removed job leaves a tombstone, so that followers learn
of it and its id is never used again.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tpujob.adapters import records
from tpujob.domain.codec import SCHEMA_VERSION, job_from_text, suspect_from_json, to_json, to_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job, Suspect
from tpujob.errors import DamagedRecord, StoreError
from tpujob.ports import Lease

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


T = TypeVar("T")

COUNTER, IDENTITY = "counters/jobs", "counters/store"
NUMBER, WAKE, AT = "number", "wake", "at"  #: fields that queries are ordered by
TOMBSTONE: Mapping[str, Value | None] = {"removed": True}

#: longer text is compressed; shorter text stays readable in the console
READABLE = 200_000
#: Firestore accepts documents of 1 MiB; the rest is for the other fields
LARGEST = 1_000_000


# Jobs ----------------------------------------------------------------------------------------------------------------


def job_fields(job: Job, *, key: str, ops: list[str], token: int) -> Mapping[str, Value | None]:
    """`token`: the newest lease token under which the record was written, in case the lease's document is lost."""
    wake = records.waking(job)
    return {
        "schema_version": SCHEMA_VERSION,
        NUMBER: int(job.id),
        "user": job.user,
        "name": job.name,
        "state": job.state.value,
        "live": not job.state.final,
        WAKE: None if wake is None else float(wake),
        "version": job.version,
        "key": key,
        "ops": ops,
        "token": token,
        "document": _packed(f"the record of job {job.id}", to_text(job)),
    }


def job(doc: Found) -> Job:
    """Raises StoreError when it is damaged, NotFound when it is a tombstone."""
    return job_from_text(doc.id, document(existing(doc, doc.id)))


def existing(doc: Found | None, job_id: str) -> Found:
    if doc is None or removed(doc):
        raise records.missing(job_id)
    return doc


def removed(doc: Found) -> bool:
    return doc.fields.get("removed") is True


def ops(doc: Found) -> dict[str, int]:
    """Return the operations that made the newest versions: by id, the version."""
    kept = cast("list[str]", field(doc, "ops", list))
    split = (each.partition(" ") for each in kept)
    return {op_id: int(version) for version, _, op_id in split}


def remembered(ops: Mapping[str, int], op_id: str, version: int) -> list[str]:
    """Return the same with one more and without the oldest."""
    newest = {**ops, op_id: version} if op_id else ops
    kept = sorted((v, op) for op, v in newest.items() if v > version - records.REMEMBERED)
    return [f"{v} {op}" for v, op in kept]


# Events --------------------------------------------------------------------------------------------------------------


def event_put(job: Job, event: Event) -> Put:
    text = records.event_text(event, job.version)
    packed = _packed(f"an event of job {job.id}", text)
    path = event_path(job.id, job.version)
    return Put(path, {"document": packed, AT: float(event.at)})


def event_path(job_id: str, seq: int) -> str:
    return f"jobs/{job_id}/events/{event_id(seq)}"


def event_id(seq: int) -> str:
    return f"{seq:09d}"


# Leases --------------------------------------------------------------------------------------------------------------


def lease_put(path: str, owner: str, token: int, until: float) -> Put:
    return Put(path, {"owner": owner, "token": token, "until": float(until)})


def same_lease(held: Found, lease: Lease) -> bool:
    return (field(held, "owner", str), field(held, "token", int)) == (lease.owner, lease.token)


def check_lease(doc: Found, held: Found | None, lease: Lease) -> None:
    """Raises Fenced when there is a newer lease of this job."""
    if held and not same_lease(held, lease):
        raise records.fenced(lease.job_id, field(held, "owner", str))
    if held is None and field(doc, "token", int) > lease.token:
        raise records.fenced(lease.job_id, "another backend")


# Suspects ------------------------------------------------------------------------------------------------------------


def suspect_fields(suspect: Suspect) -> dict[str, Any]:
    """Return the fields of a suspect. Its accusers are one text: fields hold no mappings here."""
    return {**to_json(suspect), "owners": json.dumps(dict(suspect.owners))}


def suspect(doc: Found) -> Suspect:
    """Raises StoreError when it is damaged."""
    try:
        owners: Any = json.loads(field(doc, "owners", str)) if "owners" in doc.fields else {}
    except ValueError as error:
        raise _damaged(doc, f"`owners` is not JSON: {error}") from error
    return suspect_from_json({**doc.fields, "owners": owners})


def digest(text: str) -> str:
    """Return an id for any text: the name of a document must be short and without a slash."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


# Fields --------------------------------------------------------------------------------------------------------------


def document(doc: Found) -> str:
    kept = doc.fields.get("document")
    if isinstance(kept, bytes):
        try:
            return zlib.decompress(kept).decode()
        except (zlib.error, UnicodeDecodeError) as error:
            raise _damaged(doc, f"`document` cannot be unpacked: {error}") from error
    return field(doc, "document", str)


def field(doc: Found, name: str, kind: type[T]) -> T:
    """Raises StoreError when it is missing or of another type."""
    value: Any = doc.fields.get(name)
    if type(value) is not kind:
        raise _damaged(doc, f"`{name}` should be of type {kind.__name__} and is {value!r:.40}")
    return value


def _damaged(doc: Found, why: str) -> DamagedRecord:
    of = f"the record of job {doc.id}" if doc.path.startswith("jobs/") else doc.path
    return DamagedRecord(f"{of} is damaged: {why}")


def _packed(what: str, text: str) -> str | bytes:
    if len(text) <= READABLE:  # JSON text is ASCII: as many bytes as characters
        return text
    packed = zlib.compress(text.encode())
    if len(packed) > LARGEST:
        raise StoreError(
            f"{what} takes {len(packed) / 1e6:.1f} MB even when compressed, and Firestore keeps at most 1 MiB; "
            "nothing was stored",
            hint="move large values of the job file into a file of their own",
        )
    return packed
