"""Hashes of several kinds over one stream, and whether they are what a storage has said. Pure."""

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Protocol

from tpujob.data.checksum import extend
from tpujob.data.objects import Hash, HashKind, ObjectFacts


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


def _crc32(before: int, data: bytes) -> int:
    return zlib.crc32(data, before)


def hasher(kind: HashKind) -> Hasher:
    if kind in ("crc32c", "crc32"):
        return _Crc(extend if kind == "crc32c" else _crc32)
    return hashlib.new(kind, usedforsecurity=False)


def matches(said: Hash | None, data: bytes) -> bool:
    """True where nothing is said."""
    if said is None:
        return True
    made = hasher(said.kind)
    made.update(data)
    return made.digest() == said.value


def said_of(facts: ObjectFacts) -> Hash | None:
    """What a list or a look has said of its bytes."""
    if facts.crc32c is not None:
        return Hash("crc32c", facts.crc32c.to_bytes(4, "big"))
    return facts.hash


def from_base64(kind: HashKind, text: str | None) -> Hash | None:
    """None: not given, or no hash of that kind."""
    length = {"crc32c": 4, "crc32": 4, "md5": 16, "sha1": 20, "sha256": 32}[kind]
    try:
        value = base64.b64decode(text or "", validate=True)
    except ValueError:
        return None
    return Hash(kind, value) if len(value) == length else None
