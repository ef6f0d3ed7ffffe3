"""Limits of bundles, and a reader for untrusted ones: forward only, in little memory, and never beyond the limits,
whatever the headers say. Backend and agent both read bundles with `members`.
"""

from __future__ import annotations

import contextlib
import tarfile
from typing import IO, Any, Generator, Iterator, NamedTuple, Optional, cast

MAX_FILES = 50_000  #: files, links and folders
#: bytes of the unpacked archive, headers included; tpujob packs at most 100 MiB of content
MAX_UNPACKED = 256 * 1024**2
#: parts of a path, and bytes of one part
MAX_PARTS, MAX_PART = 100, 255
_MAX_READ = 1024**2  #: bytes; only a forged header makes `tarfile` read more at once
_PIECE = 64 * 1024  #: bytes


class BadBundle(ValueError):
    """The bundle is not a valid archive, or exceeds the limits."""


class ArchiveMember(NamedTuple):
    info: tarfile.TarInfo
    #: the pieces of a file, readable until the next member is taken; empty for other kinds
    content: Iterator[bytes]


def members(
    packed: IO[bytes], *, files: int = MAX_FILES, unpacked: int = MAX_UNPACKED
) -> Iterator[ArchiveMember]:
    """Yield the members of a tar.gz in their order, using only `packed.read`. Raises BadBundle, also while a member's
    content is read, and any OSError of `packed`."""
    import gzip  # some Pythons lack zlib, and some jobs have no bundle

    archive = cast("IO[bytes]", gzip.GzipFile(fileobj=packed, mode="rb"))
    limited = _LimitedReader(archive, unpacked)
    with _raising_bad_bundle():
        tar: Any = tarfile.TarFile(fileobj=cast("IO[bytes]", limited))
        info: Optional[tarfile.TarInfo] = tar.next() if tar.firstmember else None
        while info:
            tar.members.clear()  # TarFile keeps all members otherwise
            files -= 1
            if files < 0:
                raise BadBundle("the bundle is too large: it holds too many files")
            # a sparse file's size is not that of its stored content
            if info.issparse() or info.size > unpacked:
                raise BadBundle("the bundle is too large, or says so")
            if not is_short(info.name):
                text = "the bundle has a path of more than %d parts, or %d bytes in one: %.100r..."
                raise BadBundle(text % (MAX_PARTS, MAX_PART, info.name))
            yield ArchiveMember(info, _pieces(tar, info))
            info = tar.next()


def is_short(path: str) -> bool:
    """Return whether an archive's path is within MAX_PARTS and MAX_PART. Raises ValueError for text without UTF-8."""
    parts = path.split("/")
    longest = max(len(part.encode("utf-8", "surrogateescape")) for part in parts)
    return len(parts) <= MAX_PARTS and longest <= MAX_PART


@contextlib.contextmanager
def _raising_bad_bundle() -> Generator[None, None, None]:
    import gzip
    import zlib

    errors = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError)
    try:
        yield
    except BadBundle:
        raise
    except errors as error:
        raise BadBundle("the bundle is not a valid archive: %s" % error) from error


def _pieces(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
    content = tar.extractfile(info) if info.isreg() else None
    with _raising_bad_bundle():
        while content:
            piece = content.read(_PIECE)
            if not piece:
                return
            yield piece


class _LimitedReader:
    """A forward-only view of the uncompressed archive. Raises BadBundle beyond `limit` bytes."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit = file, limit
        self._offset = 0

    def tell(self) -> int:
        return self._offset

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_READ:
            raise BadBundle("the bundle has a header that is too large")
        data = self._file.read(size)
        self._offset += len(data)
        if self._offset > self._limit:
            raise BadBundle("the bundle is too large: more than %d MiB" % (self._limit >> 20))
        return data

    def seek(self, offset: int) -> None:
        """Read up to `offset`, or to the end of the archive if that comes first."""
        if offset < self._offset:
            raise BadBundle("the bundle has a header that leads back")
        while self._offset < offset and self.read(min(_PIECE, offset - self._offset)):
            pass
