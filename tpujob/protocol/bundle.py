"""What a bundle may hold, and how one is read that anybody may have made: forward only, in little memory, and no
further than the limits, whatever its headers say. Backend and agent read bundles here alone.
"""

from __future__ import annotations

import contextlib
import tarfile
from typing import IO, Any, Generator, Iterator, NamedTuple, Optional, cast

MAX_FILES = 50_000  #: files, links and folders
#: bytes, headers included; of them, 100 MiB are content in what tpujob packs
MAX_UNPACKED = 256 * 1024**2
#: of a path, and bytes of each: more nested folders than any program has
MAX_PARTS, MAX_PART = 100, 255
_ONE_READ = 1024**2  #: bytes; only a header that lies asks for more at once
_PIECE = 64 * 1024


class BadBundle(ValueError):
    """It is no archive, or holds more than a bundle may."""


class ArchiveMember(NamedTuple):
    info: tarfile.TarInfo
    #: of a file, in pieces, until the next member is asked for; of anything else empty
    content: Iterator[bytes]


def members(
    packed: IO[bytes], *, files: int = MAX_FILES, unpacked: int = MAX_UNPACKED
) -> Iterator[ArchiveMember]:
    """What a tar.gz holds, in its order. Of `packed` only `read` is used, and its OSError is passed on. Raises
    BadBundle, also from the content of a member."""
    import gzip  # there are Pythons without zlib, and jobs without a bundle

    below = cast("IO[bytes]", gzip.GzipFile(fileobj=packed, mode="rb"))
    limited = _Unpacking(below, unpacked)
    with _explained():
        tar: Any = tarfile.TarFile(fileobj=cast("IO[bytes]", limited))
        info: Optional[tarfile.TarInfo] = tar.next() if tar.firstmember else None
        while info:
            tar.members.clear()  # it would keep them all
            files -= 1
            if files < 0:
                raise BadBundle("the bundle is too large: it holds too many files")
            # the size of a sparse file is not that of its content
            if info.issparse() or info.size > unpacked:
                raise BadBundle("the bundle is too large, or says so")
            if not is_short(info.name):
                text = "the bundle has a path of more than %d parts, or %d bytes in one: %.100r..."
                raise BadBundle(text % (MAX_PARTS, MAX_PART, info.name))
            yield ArchiveMember(info, _pieces(tar, info))
            info = tar.next()


def is_short(path: str) -> bool:
    """Whether a path of an archive is one that can be made without a deep recursion. Raises ValueError."""
    parts = path.split("/")
    longest = max(len(part.encode("utf-8", "surrogateescape")) for part in parts)
    return len(parts) <= MAX_PARTS and longest <= MAX_PART


@contextlib.contextmanager
def _explained() -> Generator[None, None, None]:
    import gzip
    import zlib

    broken = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError)
    try:
        yield
    except BadBundle:
        raise
    except broken as error:
        raise BadBundle("the bundle is not a valid archive: %s" % error) from error


def _pieces(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
    content = tar.extractfile(info) if info.isreg() else None
    with _explained():
        while content:
            piece = content.read(_PIECE)
            if not piece:
                return
            yield piece


class _Unpacking:
    """The archive below the compression, as much of a file as `tarfile` needs: no way leads back."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit, self._at = file, limit, 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _ONE_READ:
            raise BadBundle("the bundle has a header that is too large")
        data = self._file.read(size)
        self._at += len(data)
        if self._at > self._limit:
            raise BadBundle("the bundle is too large: more than %d MiB" % (self._limit >> 20))
        return data

    def seek(self, place: int) -> None:
        """Forward; at the end of the archive it stays there."""
        if place < self._at:
            raise BadBundle("the bundle has a header that leads back")
        while self._at < place and self.read(min(_PIECE, place - self._at)):
            pass
