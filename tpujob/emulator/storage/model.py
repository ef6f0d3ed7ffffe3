"""The records of the emulated Cloud Storage: objects, buckets, preconditions and errors, and their JSON.

Pure: no files, no sockets. `disk.py` stores the records, `json_api.py` reads requests.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

Json = Any  #: a value of `json.loads`

#: Fields of an object that a client may set, as the JSON API spells them.
OBJECT_FIELDS = frozenset(
    {
        "cacheControl",
        "contentDisposition",
        "contentEncoding",
        "contentLanguage",
        "contentType",
        "customTime",
        "metadata",
        "storageClass",
    }
)
IAM = "iamPolicy"  #: key of the policy in a bucket's record; responses leave it out
#: Fields of a bucket that only the service sets.
_BUCKET_FIXED = frozenset(
    {
        IAM,
        "kind",
        "id",
        "selfLink",
        "projectNumber",
        "metageneration",
        "timeCreated",
        "updated",
        "etag",
    }
)
_METADATA_LIMIT = 8 * 1024  # bytes of all custom keys and values of one object
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_LOCATION = re.compile(r"[A-Z]+-[A-Z]+[0-9]+|US|EU|ASIA|NAM4|EUR[4578]|ASIA1")


#: the XML API's codes of statuses with only one code
_CODES: Mapping[int, str] = MappingProxyType(
    {
        400: "InvalidArgument",
        403: "AccessDenied",
        404: "NoSuchKey",
        405: "MethodNotAllowed",
        412: "PreconditionFailed",
        416: "InvalidRange",
        429: "SlowDown",
        503: "ServiceUnavailable",
    }
)


class StorageApiError(Exception):
    """An error response. `reason` is the word of the JSON API, `code` the word of the XML API."""

    def __init__(self, status: int, reason: str, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.code = code or _CODES.get(status, "InternalError" if status >= 500 else reason)

    def body(self) -> Json:
        detail = {"domain": "global", "reason": self.reason, "message": self.message}
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}


def invalid(message: str) -> StorageApiError:
    return StorageApiError(400, "invalid", message)


def no_bucket() -> StorageApiError:
    text = "The specified bucket does not exist."
    return StorageApiError(404, "notFound", text, "NoSuchBucket")


def not_emulated(feature: str) -> StorageApiError:
    """Return a 400, as clients repeat a 501 for half a minute."""
    return StorageApiError(400, "notImplemented", f"{feature} is not emulated.", "NotImplemented")


def no_object(bucket: str, name: str) -> StorageApiError:
    return StorageApiError(404, "notFound", f"No such object: {bucket}/{name}")


def precondition_failed() -> StorageApiError:
    text = "At least one of the pre-conditions you specified did not hold."
    return StorageApiError(412, "conditionNotMet", text)


@dataclass(frozen=True, slots=True)
class EmulatedObject:
    """One generation of one object. Its bytes never change."""

    bucket: str
    name: str
    generation: int
    metageneration: int
    live: bool  #: False: kept only by the bucket's versioning
    size: int
    crc32c: str  #: base64, as the APIs spell it
    md5: str  #: base64; empty for composed objects, as in the cloud
    components: int  #: number of objects it was composed of; 0: not composed
    created: str  #: RFC 3339, UTC, milliseconds
    updated: str
    file: str  #: path of its bytes, below the folder of objects
    fields: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def etag(self) -> str:
        """The ETag, without quotes; changes with the bytes and the metadata."""
        return base64.b64encode(f"{self.generation}/{self.metageneration}".encode()).decode()

    @property
    def content_type(self) -> str:
        return str(self.fields.get("contentType") or "application/octet-stream")

    @property
    def storage_class(self) -> str:
        return str(self.fields.get("storageClass") or "STANDARD")


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The preconditions of one request. Generation 0 means "absent"."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None

    @staticmethod
    def from_query(query: Mapping[str, str], prefix: str = "if") -> Preconditions:
        """Read `ifGenerationMatch` and the similar parameters; with prefix `ifSource`, those of a copy's source."""
        names = ("GenerationMatch", "GenerationNotMatch")
        names += ("MetagenerationMatch", "MetagenerationNotMatch")
        return Preconditions(*(number(query, prefix + name) for name in names))

    def check(self, current: EmulatedObject | None) -> None:
        """Raise 412 when a precondition does not hold for the current object."""
        generation = current.generation if current else 0
        metageneration = current.metageneration if current else 0
        if (
            self.generation not in (None, generation)
            or self.metageneration not in (None, metageneration)
            or generation == self.generation_not
            or metageneration == self.metageneration_not
        ):
            raise precondition_failed()


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of the query; None when it is absent. Raise 400."""
    text = query.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) >= 2**63:
        raise invalid(f"Invalid value for {name}: {text[:40]!r} is not a whole number.")
    return int(text)


def check_object_name(name: str) -> str:
    """Return the name. Raise 400 for a name that breaks the rules of a flat namespace."""
    size = len(name.encode())
    if not 1 <= size <= 1024:
        raise invalid(f"The name of an object has 1 to 1024 bytes of UTF-8; this one has {size}.")
    if name in (".", "..") or name.startswith(".well-known/acme-challenge/"):
        raise invalid(f"Invalid object name: {name[:60]!r}.")
    if any(c in name for c in "\r\n\0"):
        raise invalid("The name of an object has no carriage return, line feed or NUL.")
    return name


def check_object_fields(values: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields that a client may set, without others, as the cloud does. Raise 400 for an invalid field."""
    fields = {k: v for k, v in values.items() if k in OBJECT_FIELDS and v is not None}
    metadata = fields.pop("metadata", None)
    if metadata:
        if not isinstance(metadata, dict):
            raise invalid("metadata must be an object of strings.")
        pairs: dict[str, str] = {str(k): str(v) for k, v in metadata.items() if v is not None}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        size = sum(len(k.encode()) + len(v.encode()) for k, v in pairs.items())
        if size > _METADATA_LIMIT:
            raise invalid(f"Custom metadata has {size} bytes; {_METADATA_LIMIT} are allowed.")
        fields["metadata"] = pairs
    if any(not isinstance(v, str) for k, v in fields.items() if k != "metadata"):
        raise invalid("The fields of an object are strings.")
    return fields


def patched_object_fields(old: Mapping[str, Json], patch: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields after a JSON merge patch: null removes, metadata is merged key by key."""
    new = {**old, **{k: v for k, v in patch.items() if k in OBJECT_FIELDS}}
    if isinstance(patch.get("metadata"), dict):
        new["metadata"] = {**old.get("metadata", {}), **patch["metadata"]}
    return check_object_fields(new)


def object_json(stored: EmulatedObject, base: str) -> Json:
    """Return the resource `storage#object`. `base`: the server's address as the client knows it."""
    bucket, name = stored.bucket, quote(stored.name, safe="")
    own = f"/storage/v1/b/{bucket}/o/{name}"
    resource: dict[str, Json] = {
        "kind": "storage#object",
        "id": f"{bucket}/{stored.name}/{stored.generation}",
        "selfLink": base + own,
        "mediaLink": f"{base}/download{own}?generation={stored.generation}&alt=media",
        "name": stored.name,
        "bucket": bucket,
        "generation": str(stored.generation),
        "metageneration": str(stored.metageneration),
        "contentType": stored.content_type,
        "size": str(stored.size),
        "crc32c": stored.crc32c,
        "etag": stored.etag,
        "timeCreated": stored.created,
        "updated": stored.updated,
        "timeStorageClassUpdated": stored.created,
        "timeFinalized": stored.created,
        **stored.fields,
        "storageClass": stored.storage_class,
    }
    if stored.md5:
        resource["md5Hash"] = stored.md5
    if stored.components:
        resource["componentCount"] = stored.components
    if not stored.live:
        resource["timeDeleted"] = stored.updated
    return resource


def new_bucket(request: Mapping[str, Json], now: str) -> dict[str, Json]:
    """Return the resource `storage#bucket` for a create request, with the cloud's defaults."""
    name = request.get("name")
    if not isinstance(name, str) or not _BUCKET_NAME.fullmatch(name) or ".." in name:
        raise invalid(f"Invalid bucket name: {str(name)[:70]!r}.")
    location = str(request.get("location") or "US").upper()
    if not _LOCATION.fullmatch(location):
        raise invalid(f"The specified location constraint is not valid: {location[:40]!r}.")
    access = {"uniformBucketLevelAccess": {"enabled": False}, "publicAccessPrevention": "inherited"}
    return {
        "storageClass": "STANDARD",
        "iamConfiguration": access,
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
        **{k: v for k, v in request.items() if k not in _BUCKET_FIXED and v is not None},
        "kind": "storage#bucket",
        "id": name,
        "name": name,
        "projectNumber": "1",
        "location": location,
        "locationType": "region" if "-" in location else "multi-region",
        "metageneration": "1",
        "timeCreated": now,
        "updated": now,
    }


def patched_bucket(old: Mapping[str, Json], patch: Mapping[str, Json], now: str) -> dict[str, Json]:
    """Return the bucket after a JSON merge patch; name and location stay."""
    fixed = _BUCKET_FIXED | {"name", "location", "locationType"}
    merged = _merge(old, {k: v for k, v in patch.items() if k not in fixed})
    return {**merged, "metageneration": str(int(old["metageneration"]) + 1), "updated": now}


def bucket_json(bucket: Mapping[str, Json], base: str) -> Json:
    etag = base64.b64encode(bucket["metageneration"].encode()).decode()
    shown = {key: value for key, value in bucket.items() if key != IAM}
    return {**shown, "etag": etag, "selfLink": f"{base}/storage/v1/b/{bucket['name']}"}


def _merge(old: Mapping[str, Json], patch: Mapping[str, Json]) -> dict[str, Json]:
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict) and isinstance(new.get(key), dict):
            new[key] = _merge(new[key], value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            new[key] = value
    return new
