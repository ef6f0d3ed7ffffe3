"""All tokens of a set of documents, one document after the other, of which any part can be read.

A stream lies in a file that is made once and mapped into memory. Where it is known without that where tokens lie (a
packed set whose bytes are the tokens, or whose records are arrays of tokens; a column of lists of tokens in Parquet
files), nothing is made, and what is needed is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.data.documents import Documents, Records, in_groups, in_order
from workloads.data.packed import read_array
from workloads.data.parquet import Column
from workloads.data.places import own_folder, replacing, short_hash
from workloads.data.tokenizer import Bytes, Tokenizer
from workloads.frame.config import ConfigError

#: Tokens from some positions on, and for each the number of its document, counted from 1 at the position.
Parts = tuple[NDArray[np.int32], NDArray[np.int32]]


class Stream(Protocol):
    """Tokens by position, from several threads at a time."""

    def __len__(self) -> int: ...
    def read(self, starts: NDArray[np.int64], length: int) -> Parts:
        """Return tokens and their documents, each [len(starts), length]."""
        ...


class FileStream:
    """A stream that is encoded once and lies in a file of this host: two bytes a token, or four."""

    def __init__(self, documents: Documents, tokenizer: Tokenizer) -> None:
        place = own_folder() / f"tokens-{short_hash(documents.identity, tokenizer.identity)}"
        dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.uint32)
        ends = _kept(place, dtype)
        self.ends = _encode(documents, tokenizer, place, dtype) if ends is None else ends
        self._tokens = np.memmap(place, dtype, "r")

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, starts: NDArray[np.int64], length: int) -> Parts:
        tokens = np.stack([self._tokens[at : at + length] for at in starts.tolist()])
        return tokens.astype(np.int32), _numbered(self.ends, starts, length)


def _kept(place: Path, dtype: np.dtype[np.unsignedinteger]) -> NDArray[np.int64] | None:
    """Return the ends of the documents of a complete stored stream; None if there is none."""
    try:
        ends = np.load(_beside(place))
        return ends if place.stat().st_size == ends[-1] * dtype.itemsize else None
    except (OSError, ValueError, EOFError, IndexError):
        return None


def _encode(
    documents: Documents,
    tokenizer: Tokenizer,
    place: Path,
    dtype: np.dtype[np.unsignedinteger],
) -> NDArray[np.int64]:
    """Write the stream, then the ends of its documents; return those."""
    lengths: list[int] = []
    with replacing(place) as file:
        for numbers in in_groups(documents, in_order(documents)):
            for tokens in tokenizer.encode(documents, numbers):
                file.write(np.append(tokens, tokenizer.end).astype(dtype).tobytes())
                lengths.append(len(tokens) + 1)
    ends = np.cumsum(lengths, dtype=np.int64)
    with replacing(_beside(place)) as file:
        np.save(file, ends)
    return ends


def _beside(place: Path) -> Path:
    return place.with_name(f"{place.name}-ends.npy")


class RecordStream:
    """The records of a packed set: text of which each byte is a token, or arrays of tokens, which are taken as they
    are. Nothing is made of them but the list of where they end."""

    def __init__(self, records: Records, tokenizer: Bytes | None, vocabulary: int) -> None:
        """Raises ConfigError if the records are no arrays of one type. Each is looked at when it is read."""
        self._records = records
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        order = in_order(records)
        lengths = (records.sizes + 1 if tokenizer else _array_lengths(records))[order]
        self._numbers = order[lengths > 0]
        self.ends = np.cumsum(lengths[lengths > 0])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, starts: NDArray[np.int64], length: int) -> Parts:
        first = np.searchsorted(self.ends, starts, side="right")
        last = np.searchsorted(self.ends, starts + length - 1, side="right")
        needed = np.unique(
            np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])
        )
        documents = dict(zip(needed.tolist(), self._documents(needed), strict=True))
        tokens = np.empty((len(starts), length), dtype=np.int32)
        for row, start, a, b in zip(tokens, starts, first.tolist(), last.tolist(), strict=True):
            begin = start - (self.ends[a] - len(documents[a]))
            row[:] = np.concatenate([documents[at] for at in range(a, b + 1)])[
                begin : begin + length
            ]
        return tokens, _numbered(self.ends, starts, length)

    def _documents(self, places: NDArray[np.integer]) -> list[NDArray[np.integer]]:
        """Return the tokens of the documents at these places of the stream."""
        numbers = self._numbers[places].tolist()
        if self._tokenizer:
            encoded = self._tokenizer.encode(self._records, numbers)
            return [np.append(tokens.astype(np.int32), self._tokenizer.end) for tokens in encoded]
        lengths = (self.ends[places] - np.where(places, self.ends[places - 1], 0)).tolist()
        return [
            self._checked(read_array(record, number), length, number)
            for record, length, number in zip(
                self._records.read(numbers), lengths, numbers, strict=True
            )
        ]

    def _checked(self, array: NDArray[np.number], length: int, number: int) -> NDArray[np.integer]:
        where = f"data={self._records.place}: record {number}"
        if array.shape != (length,) or array.dtype.kind not in "iu":
            raise ConfigError(
                f"{where} is no list of tokens as the first is, but {array.dtype} {array.shape}"
            )
        _check_tokens(array, self._vocabulary, where)
        return array


class ColumnStream:
    """The lists of tokens in a column of Parquet files. Before they are read, the size of each row group is known."""

    def __init__(self, column: Column, vocabulary: int) -> None:
        self._column = column
        self._vocabulary = vocabulary
        self._ends = np.cumsum([group.values for group in column.groups], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, starts: NDArray[np.int64], length: int) -> Parts:
        tokens = np.empty((len(starts), length), dtype=np.int32)
        new = np.zeros((len(starts), length), dtype=np.int32)
        # in the order of the stream a row group is read once, even if one alone is held
        for row in np.argsort(starts).tolist():
            done = 0
            while done < length:
                at = int(starts[row]) + done
                group = int(np.searchsorted(self._ends, at, side="right"))
                values, begins = self._group(group)
                first = at - int(self._ends[group]) + len(values)
                count = min(length - done, len(values) - first)
                tokens[row, done : done + count] = values[first : first + count]
                new[row, done : done + count] = begins[first : first + count]
                done += count
        new[:, 0] = 1
        return tokens, new.cumsum(axis=1, dtype=np.int32)

    def _group(self, number: int) -> tuple[NDArray[np.integer], NDArray[np.int32]]:
        """Return the tokens of a row group, and for each 1 if a list begins with it, else 0."""
        values, lengths = self._column.lists(number)
        where = f"data={self._column.place}: {self._column.name(number)}"
        if len(values) != self._column.groups[number].values or not np.all(lengths > 0):
            raise ConfigError(f"{where} has rows without tokens; leave them out")
        _check_tokens(values, self._vocabulary, where)
        begins = np.zeros(len(values), dtype=np.int32)
        begins[np.cumsum(lengths) - lengths] = 1
        return values, begins


def _check_tokens(tokens: NDArray[np.number], vocabulary: int, where: str) -> None:
    """Raise ConfigError for a token that is not in the vocabulary."""
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        odd = tokens.min() if tokens.min() < 0 else tokens.max()
        raise ConfigError(f"{where} has the token {odd}, and the model knows {vocabulary}")


def _numbered(ends: NDArray[np.int64], starts: NDArray[np.int64], length: int) -> NDArray[np.int32]:
    """Return the documents of so many tokens from each start on, where all documents end at `ends`."""
    new = np.zeros((len(starts), length), dtype=np.int32)
    new[:, 0] = 1
    for row, start in zip(new, starts.tolist(), strict=True):
        first, last = np.searchsorted(ends, (start, start + length - 1), side="right")
        row[ends[first:last] - start] = 1
    return new.cumsum(axis=1, dtype=np.int32)


def _array_lengths(records: Records) -> NDArray[np.int64]:
    """Return the lengths of the arrays in the records, from their bytes: all have one header size and one type."""
    record = records.read([0])[0]
    array = read_array(record, 0)
    lengths, rest = np.divmod(records.sizes - (len(record) - array.nbytes), array.itemsize)
    odd = (rest != 0) | (lengths < 0)
    if odd.any():
        raise ConfigError(
            f"data={records.place}: record {odd.argmax()} is no array of {array.dtype} as the first is"
        )
    return lengths
