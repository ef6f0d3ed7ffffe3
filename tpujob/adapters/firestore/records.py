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

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from tpujob.adapters import records
from tpujob.adapters.firestore.values import Found, Put, Value
from tpujob.domain.codec import SCHEMA_VERSION, job_from_text, suspect_from_json, to_json, to_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job, Suspect
from tpujob.errors import DamagedRecord, StoreError
from tpujob.ports import Lease

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
    """The operations that made the newest versions: by id, the version."""
    kept = cast("list[str]", field(doc, "ops", list))
    split = (each.partition(" ") for each in kept)
    return {op_id: int(version) for version, _, op_id in split}


def remembered(ops: Mapping[str, int], op_id: str, version: int) -> list[str]:
    """The same with one more and without the oldest."""
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
    """Whose jobs accuse it is one text: fields hold no mappings here."""
    return {**to_json(suspect), "owners": json.dumps(dict(suspect.owners))}


def suspect(doc: Found) -> Suspect:
    """Raises StoreError when it is damaged."""
    try:
        owners: Any = json.loads(field(doc, "owners", str)) if "owners" in doc.fields else {}
    except ValueError as error:
        raise _damaged(doc, f"`owners` is no JSON: {error}") from error
    return suspect_from_json({**doc.fields, "owners": owners})


def digest(text: str) -> str:
    """An id for any text: the name of a document may be neither long nor contain a slash."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


# Fields --------------------------------------------------------------------------------------------------------------


def document(doc: Found) -> str:
    """The JSON text."""
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
