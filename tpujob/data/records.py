"""Reads and writes ArrayRecord files; no other module uses the package array_record.

Opening a truncated file raises nothing: its reader is not `ok` and has no records (tried with 0.8.6). So both are
always checked.
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tpujob.data.checksums import extend
from tpujob.data.manifest import IndexEntry
from tpujob.errors import TpujobError

#: one record in each chunk, as Grain's random access requires; equal records give equal bytes
_OPTIONS = "group_size:1,zstd:1"
#: the package's errors for files that it cannot write, and for damaged files
_ERRORS = (RuntimeError, ValueError, IndexError, OSError)


class Damaged(Exception):
    """The file does not have the expected records. `str(error)` is the difference."""


def write(path: str, contents: Iterable[bytes]) -> None:
    """Write records, to be verified by `read`. Raises OSError, and errors of `contents`; the file is then unusable."""
    package, writer = _package(), None
    try:
        writer = package.ArrayRecordWriter(path, _OPTIONS)
        for content in contents:
            writer.write(content)
        if not writer.ok():
            raise OSError(0, "the writer of the shard failed")
        writer.close()
    except BaseException as error:
        _close_anyway(writer)
        if isinstance(error, _ERRORS):
            raise OSError(0, _first_clause(error)) from error
        raise


def read(path: str, entries: Sequence[IndexEntry]) -> Iterator[bytes]:
    """Yield the records. Raises Damaged if their number, or a record's size or CRC32C, differs from the entries."""
    reader = _package().ArrayRecordReader(path, "readahead_buffer_size:0,max_parallelism:0")
    try:
        if not reader.ok() or reader.num_records() != len(entries):
            count = reader.num_records() if reader.ok() else "no readable number of"
            raise Damaged(f"it has {count} records instead of {len(entries)}")
        for number, entry in enumerate(entries):
            try:
                (content,) = reader.read(number, number + 1)
            except _ERRORS as error:
                raise Damaged(f"record {number} cannot be read: {_first_clause(error)}") from error
            if len(content) != entry.size:
                raise Damaged(f"record {number} has {len(content)} bytes instead of {entry.size}")
            if extend(0, content) != entry.crc32c:
                raise Damaged(f"record {number} does not have its checksum")
            yield content
    finally:
        _close_anyway(reader)


def _close_anyway(file: Any) -> None:
    """Close a file, and ignore the error that a damaged file raises."""
    with suppress(*_ERRORS):
        if file:
            file.close()


def _first_clause(error: Exception) -> str:
    return str(error).partition(";")[0]


def _package() -> Any:
    try:
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError:
        raise TpujobError(
            "packed data needs the package array_record, which is not installed",
            hint="python3 -m pip install 'array-record>=0.8' (there is one for Linux and macOS, none for Windows)",
        ) from None
