"""Copies the bytes of one object from a source to a sink: hashes them once, in order, and compares the declared
hash before the object gets its name. After a failed read or write the copy continues from its position.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from tpujob.data.checksums import Hash, Hasher, extend, hasher
from tpujob.data.objects import MustRestart, NotCopied, ObjectContent, SourceEnded, WrongBytes
from tpujob.errors import Conflict, NotFound, Transient

_TRIES = 8
_RESTARTS = 3  #: most restarts of one object's copy

#: the reason of NotCopied for an object that disappeared after the list call
GONE = "it is not at the source any more, or was replaced there"

Opener = Callable[[int], AbstractContextManager[ObjectContent]]


class CopySink(Protocol):
    """A target for the bytes of one object, which has no name before `finish`."""

    def restart(self) -> None:
        """Drop all bytes."""
        ...

    def write(self, chunks: Iterator[bytes], start: int) -> None:
        """Take all bytes from `start` on. Raises Transient if some may be missing, MustRestart if all are lost."""
        ...

    def position(self) -> int:
        """Return the number of bytes that have arrived."""
        ...

    def finish(self, crc32c: int) -> None:
        """Give the object its name. Raises Conflict, MustRestart, Transient."""
        ...

    def abandon(self) -> None:
        """Delete the unfinished object."""
        ...


def copy_stream(
    size: int, open: Opener, declared: Hash | None, sink: CopySink, moved: Callable[[int], None]
) -> tuple[int, bool]:
    """Copy an object. Return its CRC32C, and whether a declared hash matched. `open(start)` reads the source; `moved`
    gets the size of each piece. Raises WrongBytes, NotCopied if the source is gone, and errors of `open` and `sink`."""
    mismatch: int | None = None  # the CRC32C of the last read that did not match
    restarts = 0
    try:
        for _ in range(_TRIES):
            stream = _Stream(size, open, declared, moved)
            try:
                sink.restart()
                stream.fill(sink)
                # two equal reads outvote a declared hash that is not certain
                outvoted = stream.crc32c == mismatch and not stream.certain
                if stream.matches or outvoted:
                    sink.finish(stream.crc32c)
                    return stream.crc32c, not outvoted and (stream.declared is not None or not size)
            except MustRestart:
                restarts += 1
                if restarts == _RESTARTS:
                    text = f"a copy ended {_RESTARTS} times before its last byte"
                    raise Transient(text) from None
                continue
            if stream.crc32c == mismatch:
                break
            mismatch = stream.crc32c
        raise WrongBytes(size, size)
    except NotFound:
        sink.abandon()
        raise NotCopied(GONE) from None
    except (Conflict, NotCopied):
        sink.abandon()
        raise


class _Stream:
    """One read of an object, in one or more requests. `crc32c` is that of the first `received` bytes."""

    def __init__(
        self, size: int, open: Opener, declared: Hash | None, moved: Callable[[int], None]
    ) -> None:
        self._size, self._open, self._moved = size, open, moved
        self.declared = declared
        self._hasher: Hasher | None = None
        self.received = 0
        self.crc32c = 0

    @property
    def certain(self) -> bool:
        return self.declared is None or self.declared.certain

    @property
    def matches(self) -> bool:
        """Whether the bytes match the declared hash, if any."""
        if self.declared is None or not self._size:
            return True
        if self.declared.kind == "crc32c":
            return self.crc32c.to_bytes(4, "big") == self.declared.value
        return self._hasher is not None and self._hasher.digest() == self.declared.value

    def fill(self, sink: CopySink) -> None:
        """Read until all bytes have arrived at the sink."""
        at = failures = 0
        while at < self._size:
            before = self.received
            try:
                with self._open(at) as content:
                    self.declared = self.declared or (None if at else content.hash)
                    sink.write(self._hashed(content.chunks, at), at)
                at = sink.position()
            except Transient as error:
                if isinstance(error, SourceEnded) and self.received == before:
                    raise WrongBytes(before, self._size) from None
                failures = 1 if self.received > before else failures + 1
                if failures >= _TRIES:
                    raise
                time.sleep(min(8.0, 0.05 * 2**failures))
                at = sink.position()

    def _hashed(self, chunks: Iterator[bytes], at: int) -> Iterator[bytes]:
        """Yield the chunks read from `at`, hashing only bytes that are new. Raises NotCopied for more bytes than the
        object has, as a server may send without end."""
        if self.declared and self.declared.kind != "crc32c" and not self.received:
            self._hasher = hasher(self.declared.kind)
        for data in chunks:
            new = data if at == self.received else data[max(0, self.received - at) :]
            at += len(data)
            if at > self._size:
                text = f"its server sends more than the {self._size} bytes that it announced"
                raise NotCopied(text)
            if new:
                self.crc32c = extend(self.crc32c, new)
                if self._hasher:
                    self._hasher.update(new)
                self.received = at
            yield data
            self._moved(len(data))
        if at < self._size:
            raise SourceEnded(f"the source ended after {at} of {self._size} bytes")
