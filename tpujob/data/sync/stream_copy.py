"""Copies the bytes of one object from a source to a sink: hashes them once, in order, and compares the declared
hash before the object gets its name. After a failed read the copy continues at the last byte.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tpujob.data.checksums import Hash, Hasher, extend, hasher
from tpujob.data.objects import MustRestart, NotCopied, ObjectContent, SourceEnded, WrongBytes
from tpujob.errors import NotFound, Transient

_TRIES = 8
_RESTARTS = 3  #: most restarts of one object's copy

#: the reason of NotCopied for an object that disappeared after the list call
GONE = "it is not at the source any more, or was replaced there"

Opener = Callable[[int], AbstractContextManager[ObjectContent]]
#: Takes all `chunks`, and then gives the object its name. After an error of `chunks` the object has no name.
Sink = Callable[["SourceStream"], None]


class _OtherHash(Exception):
    """The bytes do not have the declared hash."""


def copy_stream(
    size: int, open: Opener, declared: Hash | None, sink: Sink, moved: Callable[[int], None]
) -> tuple[int, bool]:
    """Copy an object. Return its CRC32C, and whether a declared hash matched. `open(start)` reads the source; `moved`
    gets the size of each piece. Raises WrongBytes, NotCopied if the source is gone, and errors of `open` and `sink`."""
    mismatch: int | None = None  # the CRC32C of the last read that did not match
    restarts = 0
    for _ in range(_TRIES):
        stream = SourceStream(size, open, declared, moved, mismatch)
        try:
            sink(stream)
            return stream.crc32c, stream.verified
        except MustRestart:
            restarts += 1
            if restarts == _RESTARTS:
                text = f"a copy ended {_RESTARTS} times before its last byte"
                raise Transient(text) from None
        except NotFound:
            raise NotCopied(GONE) from None
        except _OtherHash:
            if stream.crc32c == mismatch:
                break
            mismatch = stream.crc32c
    raise WrongBytes(size, size)


class SourceStream:
    """One read of an object, in one or more requests. `crc32c` is that of the first `received` bytes."""

    def __init__(
        self,
        size: int,
        open: Opener,
        declared: Hash | None,
        moved: Callable[[int], None],
        before: int | None = None,
    ) -> None:
        """`before`: the CRC32C of an earlier read. Two equal reads outvote a declared hash that is not certain."""
        self._size, self._open, self._moved, self._before = size, open, moved, before
        self._declared = declared
        self._hasher: Hasher | None = None
        self.received = 0
        self.crc32c = 0
        self.verified = False  #: a declared hash matched

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes; the last ones only after the declared hash was compared. After a failed request, continue at
        the next byte. Raises errors of `open`, NotCopied for more bytes than the object has, and WrongBytes."""
        failures, last = 0, b""
        while self.received < self._size:
            before = self.received
            try:
                with self._open(before) as content:
                    self._declared = self._declared or (None if before else content.hash)
                    for data in content.chunks:
                        self._take(data)
                        if self.received < self._size:
                            yield data
                            self._moved(len(data))
                        else:
                            last += data  # until it is certain that no more bytes follow
                if self.received < self._size:
                    text = f"the source ended after {self.received} of {self._size} bytes"
                    raise SourceEnded(text)
            except Transient as error:
                if isinstance(error, SourceEnded) and self.received == before:
                    raise WrongBytes(before, self._size) from None
                failures = 1 if self.received > before else failures + 1
                if failures >= _TRIES:
                    raise
                if self.received < self._size:
                    time.sleep(min(8.0, 0.05 * 2**failures))
        self._verify()
        if last:
            yield last
            self._moved(len(last))

    def _take(self, data: bytes) -> None:
        """Hash the next bytes. Raises NotCopied for too many of them, as a server may send without end."""
        if self.received + len(data) > self._size:
            raise NotCopied(f"its server sends more than the {self._size} bytes that it announced")
        if self._declared and self._declared.kind != "crc32c":
            self._hasher = self._hasher or hasher(self._declared.kind)
            self._hasher.update(data)
        self.crc32c = extend(self.crc32c, data)
        self.received += len(data)

    def _verify(self) -> None:
        declared = self._declared
        if declared is None or not self._size:
            self.verified = not self._size
            return
        if declared.kind == "crc32c":
            self.verified = self.crc32c.to_bytes(4, "big") == declared.value
        else:
            self.verified = self._hasher is not None and self._hasher.digest() == declared.value
        if not self.verified and (declared.certain or self.crc32c != self._before):
            raise _OtherHash
