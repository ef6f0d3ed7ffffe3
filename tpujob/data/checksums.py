"""Checksums: CRC32C in the notation of Cloud Storage (base64 of four bytes), hashes of other kinds, and the hashes and
identities in the headers of sources. Pure."""

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
    """The hash that a storage declares for an object."""

    kind: HashKind
    value: bytes
    certain: bool = True  #: False: the value may be no hash of the content, such as an ETag


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
    """Return a hasher of any kind except CRC32C, for which there is `extend`."""
    return _Crc32() if kind == "crc32" else hashlib.new(kind, usedforsecurity=False)


def extend(before: int, data: bytes | memoryview) -> int:
    """Return the CRC32C of a content and `data`, from the content's CRC32C."""
    return int(_extend(before, bytes(data)))  # pyright: ignore[reportUnknownArgumentType]


def of_file(content: IO[bytes]) -> tuple[int, int]:
    """Return the size and the CRC32C of a file. Raises OSError."""
    content.seek(0)
    size = crc32c = 0
    while data := content.read(_READ):
        size += len(data)
        crc32c = extend(crc32c, data)
    return size, crc32c


def encode(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def decode(text: object) -> int | None:
    """Return the CRC32C, or None for a text that is not one."""
    declared = from_base64("crc32c", str(text or ""))
    return int.from_bytes(declared.value, "big") if declared else None


def from_base64(kind: HashKind, text: str | None) -> Hash | None:
    """Return the hash, or None for a text that is not of that kind."""
    try:
        value = base64.b64decode(text or "", validate=True)
    except ValueError:
        return None
    return Hash(kind, value) if len(value) == _LENGTHS[kind] else None


# Headers of sources ---------------------------------------------------------------------------------------------------


_KINDS: tuple[HashKind, ...] = ("crc32c", "crc32", "sha256", "sha1")


def identity_of(etag: str, modified: str, size: int) -> str:
    """Return a text that differs once the source has changed; empty without ETag and time, which would show that."""
    if not etag and not modified:
        return ""
    return " ".join(part for part in (etag, modified, f"{size} bytes") if part)


def etag_of(identity: str) -> str:
    """Return the ETag in an identity; empty: it has none."""
    match = re.match(r'(?:W/)?"[^"]*"', identity)
    return match[0] if match else ""


def validator_of(identity: str) -> str:
    """Return the value for If-Range: a strong ETag, else an HTTP time (RFC 9110); empty: the identity has neither."""
    etag = etag_of(identity)
    if etag and not etag.startswith("W/"):
        return etag
    time = re.search(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT", identity)
    return time[0] if time else ""


def whole_seconds(time: datetime | None) -> str:
    """Return a time without fractions of a second, in which a list and a header of one object may differ."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time else ""


def hash_of_s3(answer: Mapping[str, object]) -> Hash | None:
    """Return the hash of an object from S3's answer to a request for the whole object; None: it declares none.

    A checksum of parts' checksums is no checksum of the content (documented): it ends in a dash and a number, or has
    the type COMPOSITE. Some servers mark it in neither way. So the checksum of an object in parts, whose ETag has a
    dash, is certain only with the type FULL_OBJECT. An ETag is the MD5 of an object that was written in one request
    without a key of KMS or the customer (documented). Other servers than Amazon's may differ, so it is not certain.
    CRC64NVME is not supported, as no fast implementation is at hand.
    """
    etag = str(answer.get("ETag") or "").strip('"')
    if answer.get("ChecksumType") != "COMPOSITE":
        certain = "-" not in etag or answer.get("ChecksumType") == "FULL_OBJECT"
        for kind in _KINDS:
            declared = from_base64(kind, str(answer.get(f"Checksum{kind.upper()}") or ""))
            if declared:
                return replace(declared, certain=certain)
    no_key = answer.get("ServerSideEncryption") in (None, "AES256")
    if no_key and not answer.get("SSECustomerAlgorithm") and re.fullmatch(r"[0-9a-f]{32}", etag):
        return Hash("md5", bytes.fromhex(etag), certain=False)
    return None


def hash_of_web(headers: Mapping[str, str]) -> Hash | None:
    """Return the hash of a file from the headers of an answer with the whole file; None: they declare none. Names of
    `headers` are in lower case.

    `X-Goog-Hash` is the hash of the stored bytes, which the server may decompress for the answer (documented).
    `Repr-Digest` is RFC 9530, `Digest` RFC 3230, `Content-MD5` RFC 1864.
    """
    if headers.get("x-goog-stored-content-encoding", "identity") == "identity":
        hashes = dict(re.findall(r"(crc32c|md5)=([\w+/=]+)", headers.get("x-goog-hash", "")))
        for kind in ("crc32c", "md5"):
            if declared := from_base64(kind, hashes.get(kind)):
                return declared
    for name in ("repr-digest", "digest"):
        match = re.search(r"(?i)\bsha-256=:?([\w+/=]+)", headers.get(name, ""))
        if match and (declared := from_base64("sha256", match[1])):
            return declared
    return from_base64("md5", headers.get("content-md5"))
