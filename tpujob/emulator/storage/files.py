"""Files of the emulated Cloud Storage: uploads in progress, and a safe file name for any object name."""

import base64
import hashlib
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from google_crc32c import extend as _extend  # pyright: ignore[reportUnknownVariableType]

_COPY_CHUNK = 4 << 20


class Incoming:
    """An upload in progress: a temporary file with its length and checksums so far."""

    def __init__(self, folder: Path, *, md5: bool = True) -> None:
        self.path = folder / uuid.uuid4().hex
        self.size = 0
        self._crc = 0
        # By far the slowest step; left out where the cloud has no MD5 either.
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._file = self.path.open("xb")

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self.size += len(chunk)
        self._crc = _crc32c(self._crc, chunk)
        if self._md5:
            self._md5.update(chunk)

    def append(self, sources: Iterable[BinaryIO]) -> None:
        """Add whole files, and close them. May run in another thread."""
        for source in sources:
            with source:
                while chunk := source.read(_COPY_CHUNK):
                    self.write(chunk)

    @property
    def crc32c(self) -> str:
        return base64.b64encode(self._crc.to_bytes(4, "big")).decode()

    @property
    def md5(self) -> str:
        """Empty when left out."""
        return base64.b64encode(self._md5.digest()).decode() if self._md5 else ""

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Remove it, unless it became an object. Safe to repeat."""
        with suppress(OSError):  # closing flushes, which fails on a full disk
            self._file.close()
        self.path.unlink(missing_ok=True)


def _crc32c(before: int, chunk: bytes) -> int:
    return int(_extend(before, chunk))  # pyright: ignore[reportUnknownArgumentType]


def file_name(bucket: str, name: str, generation: int) -> str:
    """A safe path for any object name, readable where it can be: `gs://b/a/c` is `b/a/c@<generation>`.

    No folder name holds `@`, so `a` and `a/c` can both exist; none is `.`, `..` or empty. Names that are too long or
    too deep for a file system become a hash.
    """
    parts = [_segment(part) for part in name.split("/")]
    safe = "/".join(parts)
    if len(safe) > 800 or len(parts) > 40 or max(map(len, parts)) > 200:
        safe = "%long/" + hashlib.sha256(name.encode()).hexdigest()
    return f"{bucket}/{safe}@{generation}"


def _segment(part: str) -> str:
    if not part.strip("."):
        return part.replace(".", "%2E") or "%"
    return quote(part, safe=" +=,")
