"""ArrayRecord files: the one place that knows the package that writes and reads them.

A file that was cut short raises nothing when it is opened: it says that it is not `ok` and has no records (tried with
0.8.6). So both are asked, always.
"""

import importlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tpujob.data.checksums import extend
from tpujob.errors import TpujobError

#: one record in each chunk, as Grain's random access needs it. Equal records make equal bytes.
OPTIONS = "group_size:1,zstd:1"
_BATCH_BYTES = 16 << 20
_BATCH = 1024
#: what the package raises for a file that it cannot write or whose chunks do not fit their hashes
_ERRORS = (RuntimeError, ValueError, IndexError, OSError)


class Damaged(Exception):
    """The file does not hold the records that it should. `str(error)` says how it differs."""


class CannotWrite(OSError):
    """The disk is full, or refuses the file."""


def write(path: str, contents: Iterable[bytes]) -> None:
    """Afterwards the file has these records, as far as its writer knows. Raises CannotWrite, and what `contents` does;
    what is in the file by then is to be removed."""
    with _translated():
        writer = _package().ArrayRecordWriter(path, OPTIONS)
    try:
        for content in contents:
            with _translated():
                writer.write(content)
        if not writer.ok():
            raise CannotWrite(0, "the writer of the shard failed")
    except BaseException:
        _close_anyway(writer)
        raise
    with _translated():
        writer.close()


def read(path: str, sizes: Sequence[int]) -> Iterator[bytes]:
    """The records, which must be so many and have these sizes. Raises Damaged."""
    reader = _package().ArrayRecordReader(path, "readahead_buffer_size:0,max_parallelism:0")
    try:
        if not reader.ok() or reader.num_records() != len(sizes):
            found = reader.num_records() if reader.ok() else "no readable number of"
            raise Damaged(f"it has {found} records instead of {len(sizes)}")
        for start, end in _batches(sizes):
            for number, content in enumerate(_read(reader, start, end), start):
                if len(content) != sizes[number]:
                    raise Damaged(
                        f"record {number} has {len(content)} bytes instead of {sizes[number]}"
                    )
                yield content
    finally:
        _close_anyway(reader)


def verify(path: str, sizes: Sequence[int], checksums: Sequence[int]) -> None:
    """Read the whole file back. Raises Damaged unless each record is there with its size and CRC32C."""
    for number, content in enumerate(read(path, sizes)):
        if extend(0, content) != checksums[number]:
            raise Damaged(f"record {number} does not have its checksum")


def _read(reader: Any, start: int, end: int) -> list[bytes]:
    try:
        return reader.read(start, end)
    except _ERRORS as error:
        raise Damaged(f"records {start} to {end - 1} cannot be read: {_first(error)}") from error


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of records that fit into memory at once."""
    start = held = 0
    for number, size in enumerate(sizes):
        if number > start and (held + size > _BATCH_BYTES or number - start == _BATCH):
            yield start, number
            start, held = number, 0
        held += size
    if start < len(sizes):
        yield start, len(sizes)


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except _ERRORS as error:
        raise CannotWrite(0, _first(error)) from error


def _close_anyway(file: Any) -> None:
    """Closing a file that is damaged raises once more."""
    with suppress(*_ERRORS):
        file.close()


def _first(error: Exception) -> str:
    return str(error).partition(";")[0]


def _package() -> Any:
    try:
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError:
        raise TpujobError(
            "packed data needs the package array_record, which is not installed",
            hint="pip install 'tpujob[pack]' (there is one for Linux and macOS, none for Windows)",
        ) from None
