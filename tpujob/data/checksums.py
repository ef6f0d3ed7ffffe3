"""CRC32C as Cloud Storage writes it (base64 of four bytes), and hashes of other kinds over one stream; what a
source says of all bytes of a file, and what changes when it is written. Pure."""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, Literal, Protocol

from google_crc32c import extend as _extend  # pyright: ignore[reportUnknownVariableType]

HashKind = Literal["crc32c", "crc32", "md5", "sha1", "sha256"]
_LENGTHS = {"crc32c": 4, "crc32": 4, "md5": 16, "sha1": 20, "sha256": 32}
_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Hash:
    """What a storage declares of all bytes of one object."""

    kind: HashKind
    value: bytes
    certain: bool = True  #: False: it looks like a hash, and may be something else (an ETag)


class Hasher(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...


class _Crc32:
    value = 0

    def update(self, data: bytes, /) -> None:
        self.value = zlib.crc32(data, self.value)

    def digest(self) -> bytes:
        return self.value.to_bytes(4, "big")


def hasher(kind: HashKind) -> Hasher:
    """Of any kind but CRC32C, which `extend` computes of every stream."""
    return _Crc32() if kind == "crc32" else hashlib.new(kind, usedforsecurity=False)


def extend(before: int, data: bytes | memoryview) -> int:
    """Return the CRC32C of everything so far and of `data`."""
    return int(_extend(before, bytes(data)))  # pyright: ignore[reportUnknownArgumentType]


def of_file(content: IO[bytes]) -> tuple[int, int]:
    """The length and the CRC32C of all of it. Raises OSError."""
    content.seek(0)
    size = crc32c = 0
    while data := content.read(_READ):
        size += len(data)
        crc32c = extend(crc32c, data)
    return size, crc32c


def encode(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def decode(text: object) -> int | None:
    """Return the checksum; None: not given, or not a checksum."""
    declared = from_base64("crc32c", str(text or ""))
    return int.from_bytes(declared.value, "big") if declared else None


def from_base64(kind: HashKind, text: str | None) -> Hash | None:
    """Return the hash; None: not given, or not a hash of that kind."""
    try:
        value = base64.b64decode(text or "", validate=True)
    except ValueError:
        return None
    return Hash(kind, value) if len(value) == _LENGTHS[kind] else None


# What the headers of a source say -------------------------------------------------------------------------------------


_KINDS: tuple[HashKind, ...] = ("crc32c", "crc32", "sha256", "sha1")


def identity_of(etag: str, modified: str, size: int) -> str:
    """Empty: the source has neither an ETag nor a time, so nothing tells whether it has changed."""
    if not etag and not modified:
        return ""
    return " ".join(part for part in (etag, modified, f"{size} bytes") if part)


def etag_of(identity: str) -> str:
    """Return the ETag as the source gave it; empty: it gave none."""
    found = re.match(r'(?:W/)?"[^"]*"', identity)
    return found[0] if found else ""


def validator_of(identity: str) -> str:
    """What If-Range takes: a strong ETag, or else a time of the web (RFC 9110). Empty: there is neither."""
    etag = etag_of(identity)
    if etag and not etag.startswith("W/"):
        return etag
    time = re.search(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT", identity)
    return time[0] if time else ""


def whole_seconds(time: datetime | None) -> str:
    """A list and the header of the same object differ in what is below a second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time else ""


def hash_of_s3(answer: Mapping[str, object]) -> Hash | None:
    """What S3 says of all bytes of an object, in its answer to a request for the whole of it.

    A checksum of parts' checksums depends on the parts, and is none of the bytes (documented): it has a dash and a
    number, or its type is COMPOSITE. Some servers mark it by neither, so the checksum of an object in parts, whose ETag
    has a dash, is certain only with the type FULL_OBJECT. An ETag is the MD5 of the bytes for an object that was
    written at once without a key of KMS or of the customer (documented); other servers than Amazon's need not keep to
    that, so it is not certain. CRC64NVME is not compared: nothing here computes it fast enough.
    """
    etag = str(answer.get("ETag") or "").strip('"')
    if answer.get("ChecksumType") != "COMPOSITE":
        certain = "-" not in etag or answer.get("ChecksumType") == "FULL_OBJECT"
        for kind in _KINDS:
            found = from_base64(kind, str(answer.get(f"Checksum{kind.upper()}") or ""))
            if found:
                return replace(found, certain=certain)
    plain = answer.get("ServerSideEncryption") in (None, "AES256")
    if plain and not answer.get("SSECustomerAlgorithm") and re.fullmatch(r"[0-9a-f]{32}", etag):
        return Hash("md5", bytes.fromhex(etag), certain=False)
    return None


def hash_of_web(headers: Mapping[str, str]) -> Hash | None:
    """What the headers of an answer with the whole file say of its bytes; `headers` has names in lower case.

    `X-Goog-Hash` is of what is stored: not of what arrives when the server unpacks it on the way (documented).
    `Repr-Digest` is RFC 9530, `Digest` RFC 3230, `Content-MD5` RFC 1864.
    """
    if headers.get("x-goog-stored-content-encoding", "identity") == "identity":
        hashes = dict(re.findall(r"(crc32c|md5)=([\w+/=]+)", headers.get("x-goog-hash", "")))
        found = from_base64("crc32c", hashes.get("crc32c")) or from_base64("md5", hashes.get("md5"))
        if found:
            return found
    for name in ("repr-digest", "digest"):
        match = re.search(r"(?i)\bsha-256=:?([\w+/=]+)", headers.get(name, ""))
        if match and (found := from_base64("sha256", match[1])):
            return found
    return from_base64("md5", headers.get("content-md5"))
