"""A column of Parquet files: text, or lists of tokens.

Of each file the footer is read, then of a row group the one column that is needed, by one request for that range: from
a folder of this host, or from a bucket. Row groups, and rows within each, are in a random order, always the same one.
"""

# pyarrow and fsspec are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false, reportAttributeAccessIssue=false

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.data.rows import DATASET_SEED
from workloads.frame.config import ConfigError

#: What the column is called. Without one of these names it has to be the only one of its kind.
_TEXT, _TOKENS = ("text", "content"), ("input_ids", "tokens")
#: Bytes at the end of a file that are read at once: few footers are longer.
_TAIL = 1 << 16
#: Footers that are requested at a time.
_REQUESTS = 16
#: Bytes of row groups in memory, but one group at least.
_HELD = 256 << 20


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file, and where in the file the column lies."""

    path: str
    index: int  #: in its file
    rows: int
    values: int  #: tokens of all its rows, a row without any counted as one
    size: int  #: bytes of the column in memory
    start: int  #: bytes from the beginning of the file
    end: int


class Column:
    """A column of all Parquet files below a folder, by row group. Any number of threads may read."""

    def __init__(self, place: str, *, tokens: bool) -> None:
        """Open the column with lists of `tokens`, else that with text. Raises ConfigError without pyarrow, without such
        a column, and for files that are cut short or have no rows."""
        self.place = place
        self._parquet = _parquet(place)
        self._storage, root = _storage(place)
        sizes = _files(self._storage, root)
        with ThreadPool(_REQUESTS) as pool:
            footers = dict(zip(sizes, pool.starmap(self._footer, sizes.items()), strict=True))
        self._metadata = {path: self._parsed(path, footer) for path, footer in footers.items()}
        listed = b"".join(f"{p.removeprefix(root)}\n".encode() + footers[p] for p in sizes)
        #: A hash of names and footers, which say where each part of each column lies, and often its bounds.
        self.identity = hashlib.sha256(listed).hexdigest()[:16]
        self._name = self._chosen(tokens)
        groups = [group for path in sizes for group in self._groups(path)]
        if not groups:
            raise ConfigError(f"data={place}: its Parquet files have no rows")
        order = np.random.default_rng(DATASET_SEED).permutation(len(groups))
        self.groups: list[RowGroup] = [groups[number] for number in order.tolist()]
        held = max(_HELD // max(group.size for group in groups), 1)
        #: The rows of the group of that number, as an array of pyarrow. Raises ConfigError for damaged bytes.
        self.read = lru_cache(maxsize=held)(self._read)

    def name(self, number: int) -> str:
        """Return the name of a group, for messages."""
        return f"row group {self.groups[number].index} of {self.groups[number].path}"

    def lists(self, number: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """Return the numbers of all lists in a row group, one list after the other, and the length of each."""
        import pyarrow.compute

        rows = self.read(number)
        lengths = pyarrow.compute.list_value_length(rows).fill_null(0)
        return rows.flatten().to_numpy(zero_copy_only=False), lengths.to_numpy()

    def _read(self, number: int) -> Any:
        group = self.groups[number]
        part = self._storage.cat_file(group.path, start=group.start, end=group.end)
        metadata = self._metadata[group.path]
        try:
            file = self._parquet.ParquetFile(_Part(part, group.start), metadata=metadata)
            rows = file.read_row_group(group.index, columns=[self._name]).column(0)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"data={self.place}: {self.name(number)} cannot be read; copy the file again "
                f"({str(error).splitlines()[0]})"
            ) from error
        order = np.random.default_rng((DATASET_SEED, number)).permutation(group.rows)
        return rows.combine_chunks().take(order)

    def _footer(self, path: str, size: int) -> bytes:
        """Return the end of a file: its metadata, their length in 4 bytes, and 4 bytes that are always the same."""
        tail = self._storage.cat_file(path, start=max(size - _TAIL, 0), end=size)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail[-4:] != b"PAR1" or length > size:
            raise self._damaged(path)
        if length > len(tail):
            return self._storage.cat_file(path, start=size - length, end=size)
        return tail[-length:]

    def _parsed(self, path: str, footer: bytes) -> Any:
        try:
            return self._parquet.read_metadata(io.BytesIO(footer))
        except (OSError, ValueError) as error:
            raise self._damaged(path) from error

    def _damaged(self, path: str) -> ConfigError:
        return ConfigError(f"data={self.place}: {path} is no whole Parquet file; copy it again")

    def _chosen(self, tokens: bool) -> str:
        """Return the name of the column."""
        schema = next(iter(self._metadata.values())).schema.to_arrow_schema()
        fits, names = (_has_tokens, _TOKENS) if tokens else (_has_text, _TEXT)
        able = [field.name for field in schema if fits(field.type)]
        for name in (*names, *able[: len(able) == 1]):
            if name in able:
                return name
        raise ConfigError(
            f"data={self.place}: of the columns {', '.join(schema.names)} one must be called {' or '.join(names)}, or "
            f"be the only one with {'lists of integers' if tokens else 'text'}"
        )

    def _groups(self, path: str) -> Iterator[RowGroup]:
        metadata = self._metadata[path]
        columns = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        own = [i for i, column in enumerate(columns) if column.split(".")[0] == self._name]
        if len(own) != 1:
            raise ConfigError(f"data={self.place}: {path} has no column {self._name} as others")
        for index in range(metadata.num_row_groups):
            rows = metadata.row_group(index).num_rows
            part = metadata.row_group(index).column(own[0])
            values, size = part.num_values, part.total_uncompressed_size
            start = part.dictionary_page_offset or part.data_page_offset
            if rows:
                end = start + part.total_compressed_size
                yield RowGroup(path, index, rows, values, size, start, end)


class Texts:
    """The rows of a column as documents, in the order in which they are read."""

    def __init__(self, place: str) -> None:
        """Raises ConfigError as `Column` does."""
        self._column = Column(place, tokens=False)
        self.place = place
        self.identity = self._column.identity
        groups = self._column.groups
        self._ends = np.cumsum([group.rows for group in groups])
        #: In a row group each row has the mean: what one has is not known before it is read.
        self.sizes = np.repeat([-(-g.size // g.rows) for g in groups], [g.rows for g in groups])

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        at = np.asarray(numbers)
        groups = np.searchsorted(self._ends, at, side="right")
        rows = zip(
            groups, at - self._ends[groups], strict=True
        )  # counted from the end of the group
        texts = [self._column.read(group)[row].as_buffer() for group, row in rows]
        return [text.to_pybytes() if text else b"" for text in texts]

    def name(self, number: int) -> str:
        group = int(np.searchsorted(self._ends, number, side="right"))
        return f"a row in {self._column.name(group)}"


def is_parquet(place: str) -> bool:
    """Return whether a folder of this host or a prefix `gs://` has Parquet files and is no packed set."""
    packed = "://" not in place and Path(place, "manifest.json").is_file()
    return not packed and bool(_files(*_storage(place)))


def _storage(place: str) -> tuple[Any, str]:
    import fsspec

    return fsspec.url_to_fs(place)


def _files(storage: Any, root: str) -> dict[str, int]:
    """Return the sizes of the Parquet files below a folder by their paths, which do not begin with `.` or `_`."""
    found: dict[str, Any] = storage.find(root, detail=True)
    return {
        path: file["size"]
        for path, file in sorted(found.items())
        if path.endswith(".parquet") and not re.search(r"/[._]", path.removeprefix(root))
    }


class _Part(io.BytesIO):
    """A file of which only a part is here, and is read."""

    def __init__(self, part: bytes, start: int) -> None:
        super().__init__(part)
        self._start = start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        from_start = self._start if whence == io.SEEK_SET else 0
        return super().seek(offset - from_start, whence) + self._start

    def tell(self) -> int:
        return super().tell() + self._start


def _has_text(type: Any) -> bool:
    return str(type).removeprefix("large_") in ("string", "binary")


def _has_tokens(type: Any) -> bool:
    return hasattr(type, "value_type") and str(type.value_type).lstrip("u").startswith("int")


def _parquet(place: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"data={place} has Parquet files, which need the package pyarrow: python3 -m pip install 'pyarrow>=21'"
        ) from None
    return pyarrow.parquet
