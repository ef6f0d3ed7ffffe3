"""The documents of the store in Firestore: their paths and fields, and conversion from and to records. Pure.

    jobs/000042                     the record as JSON text, and the fields that queries use
    jobs/000042/events/000000007    an event as JSON text, named by the version that it led to
    leases/000042                   the job's newest lease
    keys/<digest>                   the jobs that were created under an idempotency key
    suspects/<digest>  accusations/<digest>  zones/<zone>  counters/jobs
    removed/000042                  the record of a removed job, reduced to what it has cost
    counters/store                  the identity of the store

The text is one field without an index (`deploy/firestore.indexes.json`). In indexed fields each host of each slice
would count against the limit of index entries, and cost on every write. A removed job leaves a tombstone, so that
followers learn of the removal and the id is never used again.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tpujob.adapters import records
from tpujob.domain.codec import SCHEMA_VERSION, job_from_text, suspect_from_text, to_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job, Suspect
from tpujob.errors import DamagedRecord, StoreError
from tpujob.ports import Lease

#: the types of fields that we use
Value = str | int | float | bool | bytes | list[str]
#: field, `==` `<=` or `>`, value
Where = tuple[str, str, Any]

NAME = "__name__"  #: the name for a document's id in queries
CHANGED = "changed"  #: the field with the server's time of the last write; see `Put.stamped`


@dataclass(frozen=True, slots=True)
class Doc:
    """A document that was read."""

    path: str  #: below the root of the database
    fields: Mapping[str, Value]
    updated: Any  #: Firestore's time of the last change, for preconditions
    read: Any = None  #: and of the read, if it was read by its path

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def changed_us(self) -> int:
        """The time of the last change, in microseconds since the epoch, by the database's clock."""
        return microseconds(self.updated)


@dataclass(frozen=True, slots=True)
class Put:
    """A write that replaces a whole document."""

    path: str
    fields: Mapping[str, Value | None]  #: None: left out
    stamped: bool = False  #: the server writes its time into the field `changed`


@dataclass(frozen=True, slots=True)
class Remove:
    path: str


def microseconds(time: Any) -> int:
    """Return a timestamp of Firestore in microseconds since the epoch."""
    return time.seconds * 1_000_000 + time.nanos // 1000


def parse_document(document: Any, root: str, read: Any = None) -> Doc:
    pb = type(document).pb(document)
    fields = {name: _from_value(value) for name, value in pb.fields.items()}
    return Doc(pb.name.removeprefix(f"{root}/"), fields, pb.update_time, read)


def build_write(write: Put | Remove, read: Mapping[str, Doc | None], root: str) -> Any:
    """Return Firestore's write. It fails if the document has changed since it was `read`; one that was not read is
    written unconditionally."""
    from google.cloud.firestore_v1.types import Write

    name = f"{root}/{write.path}"
    if isinstance(write, Remove):
        message: dict[str, Any] = {"delete": name}
    else:
        fields = {field: _to_value(v) for field, v in write.fields.items() if v is not None}
        message = {"update": {"name": name, "fields": fields}}
        if write.stamped:
            message["update_transforms"] = [{"field_path": CHANGED, "set_to_server_value": 1}]
    if write.path in read:
        old = read[write.path]
        message["current_document"] = {"update_time": old.updated} if old else {"exists": False}
    return Write(message)


def build_query(
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
    """Return Firestore's query. `only`: fetch this field alone. `below`: the parent path of the ids that a `where` on
    NAME compares. `everywhere`: search all collections of that name, below any document. `after`: begin behind the
    document with this value of the field `order` and this path."""
    from google.cloud.firestore_v1.types import StructuredQuery

    direction = "DESCENDING" if newest_first else "ASCENDING"
    message: dict[str, Any] = {
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
                else _to_value(value),
            }
        }
        for name, op, value in where
    ]
    if filters:
        message["where"] = {"composite_filter": {"op": "AND", "filters": filters}}
    if after:
        value, path = after
        message["order_by"].append({"field": {"field_path": NAME}, "direction": direction})
        cursor = [_to_value(value), {"reference_value": f"{root}/{path}"}]
        message["start_at"] = {"values": cursor, "before": False}
    if limit:
        message["limit"] = {"value": limit}
    if only:
        message["select"] = {"fields": [{"field_path": only}]}
    return StructuredQuery(message)


_OPERATORS = {"==": "EQUAL", "<=": "LESS_THAN_OR_EQUAL", ">": "GREATER_THAN"}


def _to_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):  # before int, of which bool is a subclass
        return {"boolean_value": value}
    if isinstance(value, int):
        return {"integer_value": value}
    if isinstance(value, float):
        return {"double_value": value}
    if isinstance(value, bytes):
        return {"bytes_value": value}
    if isinstance(value, list):
        return {"array_value": {"values": [_to_value(item) for item in value]}}
    if isinstance(value, Time):
        seconds, us = divmod(value.us, 1_000_000)
        return {"timestamp_value": {"seconds": seconds, "nanos": us * 1000}}
    return {"string_value": value}


@dataclass(frozen=True, slots=True)
class Time:
    """A time to compare the field CHANGED with."""

    us: int  #: microseconds since the epoch


def _from_value(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    if kind == "array_value":
        return [_from_value(item) for item in value.array_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


T = TypeVar("T")

COUNTER, IDENTITY = "counters/jobs", "counters/store"
NUMBER, WAKE, AT = "number", "wake", "at"  #: fields that queries order by
TOMBSTONE: Mapping[str, Value | None] = {"removed": True}

#: longer text, in bytes, is compressed; shorter text stays readable in the console
READABLE = 200_000
#: limit in bytes: Firestore accepts documents of 1 MiB, and the other fields take the rest
LARGEST = 1_000_000


# Jobs ----------------------------------------------------------------------------------------------------------------


def job_fields(job: Job, *, key: str, ops: list[str], token: int) -> Mapping[str, Value | None]:
    """Return the fields of a job's document. `token`: the newest lease token under which the record was written, in
    case the lease's document is lost."""
    wake = records.wake_time(job)
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
        "document": _pack(f"the record of job {job.id}", to_text(job)),
    }


def removed_put(job: Job) -> Put:
    packed = _pack(f"the record of job {job.id}", to_text(job))
    return Put(f"removed/{job.id}", {NUMBER: int(job.id), "document": packed})


def parse_job(doc: Doc) -> Job:
    """Return the job of a document. Raises StoreError for a damaged document, NotFound for a tombstone."""
    return job_from_text(doc.id, text_of(check_exists(doc, doc.id)))


def check_exists(doc: Doc | None, job_id: str) -> Doc:
    """Return the job's document. Raises NotFound when it does not exist or is a tombstone."""
    if doc is None or is_removed(doc):
        raise records.missing(job_id)
    return doc


def is_removed(doc: Doc) -> bool:
    return doc.fields.get("removed") is True


def parse_ops(doc: Doc) -> dict[str, int]:
    """Return the operation ids of the newest commits, with the version that each led to."""
    ops = cast("list[str]", field(doc, "ops", list))
    split = (op.partition(" ") for op in ops)
    return {op_id: int(version) for version, _, op_id in split}


def add_op(ops: Mapping[str, int], op_id: str, version: int) -> list[str]:
    """Return the field `ops` after the commit of `op_id` as `version`, without operations that are too old."""
    with_op = {**ops, op_id: version} if op_id else ops
    newest = sorted((v, op) for op, v in with_op.items() if v > version - records.REMEMBERED_OPS)
    return [f"{v} {op}" for v, op in newest]


# Events --------------------------------------------------------------------------------------------------------------


def event_put(job: Job, event: Event) -> Put:
    text = records.event_text(event, job.version)
    packed = _pack(f"an event of job {job.id}", text)
    path = event_path(job.id, job.version)
    return Put(path, {"document": packed, AT: float(event.at)})


def event_path(job_id: str, seq: int) -> str:
    return f"jobs/{job_id}/events/{event_id(seq)}"


def event_id(seq: int) -> str:
    return f"{seq:09d}"


# Leases --------------------------------------------------------------------------------------------------------------


def lease_put(lease: Lease) -> Put:
    fields = {"owner": lease.owner, "token": lease.token, "ttl": float(lease.ttl)}
    return Put(f"leases/{lease.job_id}", fields, stamped=True)


def in_force(held: Doc) -> bool:
    """Return whether the lease was in force when it was read: by the database's clock, as when it was written."""
    age = microseconds(held.read) - microseconds(held.fields.get(CHANGED, held.updated))
    return age < field(held, "ttl", float) * 1e6


def same_lease(held: Doc, lease: Lease) -> bool:
    return (field(held, "owner", str), field(held, "token", int)) == (lease.owner, lease.token)


def check_lease(doc: Doc, held: Doc | None, lease: Lease) -> None:
    """Raise Fenced when the job, of document `doc`, has a newer lease than this one."""
    if held and not same_lease(held, lease):
        raise records.fenced(lease.job_id, field(held, "owner", str))
    if held is None and field(doc, "token", int) > lease.token:
        raise records.fenced(lease.job_id, "another backend")


# Suspects ------------------------------------------------------------------------------------------------------------


def suspect_fields(suspect: Suspect) -> dict[str, Any]:
    """Return the fields of a suspect's document. It is JSON text: our fields hold no mappings."""
    return {"suspect": to_text(suspect)}


def parse_suspect(doc: Doc) -> Suspect:
    """Return the suspect of a document. Raises StoreError when it is damaged."""
    return suspect_from_text(field(doc, "suspect", str))


def digest(text: str) -> str:
    """Return a document id for any text: ids must be short and without a slash."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


# Fields --------------------------------------------------------------------------------------------------------------


def text_put(path: str, text: str, **fields: Value) -> Put:
    """Return the write of a document that `text_of` reads. Raises StoreError if the text is too large."""
    return Put(path, {"document": _pack(path, text), **fields})


def text_of(doc: Doc) -> str:
    """Return the JSON text in the field `document`. Raises StoreError when it is damaged."""
    packed = doc.fields.get("document")
    if isinstance(packed, bytes):
        try:
            return zlib.decompress(packed).decode()
        except (zlib.error, UnicodeDecodeError) as error:
            raise _damaged_error(doc, f"`document` cannot be unpacked: {error}") from error
    return field(doc, "document", str)


def field(doc: Doc, name: str, kind: type[T]) -> T:
    """Return the value of a field. Raises StoreError when it is missing or of another type."""
    value: Any = doc.fields.get(name)
    if type(value) is not kind:
        raise _damaged_error(
            doc, f"`{name}` should be of type {kind.__name__} and is {value!r:.40}"
        )
    return value


def _damaged_error(doc: Doc, reason: str) -> DamagedRecord:
    subject = f"the record of job {doc.id}" if doc.path.startswith("jobs/") else doc.path
    return DamagedRecord(f"{subject} is damaged: {reason}")


def _pack(subject: str, text: str) -> str | bytes:
    """Return the text, compressed if it is long. Raises StoreError when it is too large for a document."""
    if len(text) <= READABLE:  # JSON text is ASCII: as many bytes as characters
        return text
    packed = zlib.compress(text.encode())
    if len(packed) > LARGEST:
        raise StoreError(
            f"{subject} takes {len(packed) / 1e6:.1f} MB even when compressed, and Firestore keeps at most 1 MiB; "
            "nothing was stored",
            hint="move large values of the job file into a file of their own",
        )
    return packed
