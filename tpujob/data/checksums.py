"""CRC32C as Cloud Storage writes it (base64 of four bytes), and hashes of other kinds over one stream. Pure."""

import base64
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
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


class _Crc:
    def __init__(self, following: Callable[[int, bytes], int]) -> None:
        self._following, self._value = following, 0

    def update(self, data: bytes, /) -> None:
        self._value = self._following(self._value, data)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def hasher(kind: HashKind) -> Hasher:
    if kind == "crc32c":
        return _Crc(extend)
    if kind == "crc32":
        return _Crc(lambda before, data: zlib.crc32(data, before))
    return hashlib.new(kind, usedforsecurity=False)


def extend(before: int, data: bytes | memoryview) -> int:
    """The CRC32C of everything so far and of `data`."""
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
    """None: not given, or not a checksum."""
    declared = from_base64("crc32c", str(text or ""))
    return int.from_bytes(declared.value, "big") if declared else None


def from_base64(kind: HashKind, text: str | None) -> Hash | None:
    """None: not given, or not a hash of that kind."""
    try:
        value = base64.b64decode(text or "", validate=True)
    except ValueError:
        return None
    return Hash(kind, value) if len(value) == _LENGTHS[kind] else None
