"""A file of records that grows, read from where the last read ended."""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, NamedTuple

MAX_READ = 256 * 1024  #: bytes of a file that are read at once
MAX_RECORD = 128 * 1024  #: bytes of a record that is read; scalars have far less


class Unusable(Exception):
    """The file is not what its name says. `str(error)` is the reason."""


class Scalars(NamedTuple):
    """The scalars of a step."""

    step: int
    at: float  #: by the program's clock
    values: Dict[str, float]


class Tail:
    """A file of records. A subclass says what a record is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0  #: of the first byte that was not parsed
        self.has_rows = False  #: that were read
        self._parsed = 0  #: bytes of the newest read that were parsed
        self._read_to_end = -1  #: the size of the file when it was last read to its end

    def read(self) -> List[Scalars]:
        """Return the scalars of the records since the last call, of at most MAX_READ bytes; a record that is not whole
        yet comes later. Raises Unusable, OSError."""
        size = os.stat(self.path).st_size
        if size <= self.offset or size == self._read_to_end:
            return []
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(MAX_READ)
        if self.offset + len(data) >= size:
            self._read_to_end = size
        self._parsed = 0
        try:
            rows = list(self._parse(data))
        except ValueError as error:
            raise Unusable(str(error)) from None
        finally:
            self.offset += self._parsed
        self.has_rows = self.has_rows or bool(rows)
        return rows

    def parsed(self, count: int) -> None:
        """Record that so many bytes of the newest read need not be read again; more than it had: they are skipped."""
        self._parsed = count

    def _parse(self, data: bytes) -> Iterator[Scalars]:
        """Yield the scalars of the whole records in `data`, and call `parsed` behind each record."""
        raise NotImplementedError
