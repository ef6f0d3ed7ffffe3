"""All tokens of a set of documents, one document after the other, of which any part can be read.

A stream lies in a file that is made once and mapped into memory. Where the sizes of the documents tell where each
begins (a packed set whose bytes are the tokens, or whose records are arrays of tokens), nothing is made, and the
records are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.data.documents import Documents, Records, in_groups, in_order
from workloads.data.packed import read_array
from workloads.data.places import own_folder, replacing, short_hash
from workloads.data.tokenizer import Bytes, Tokenizer
from workloads.frame.config import ConfigError


class Stream(Protocol):
    """Tokens by position, from several threads at a time."""

    ends: NDArray[np.int64]  #: where each document ends, ascending; the last one is the length

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int32]:
        """[len(starts), length]: so many tokens from each of these positions on."""
        ...


class FileStream:
    """A stream that is encoded once and lies in a file of this host: two bytes a token, or four."""

    def __init__(self, documents: Documents, tokenizer: Tokenizer) -> None:
        place = own_folder() / f"tokens-{short_hash(documents.identity, tokenizer.identity)}"
        dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.uint32)
        ends = _kept(place, dtype)
        self.ends = _encode(documents, tokenizer, place, dtype) if ends is None else ends
        self._tokens = np.memmap(place, dtype, "r")

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int32]:
        return np.stack([self._tokens[at : at + length] for at in starts.tolist()]).astype(np.int32)


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

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int32]:
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
        return tokens

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
        if array.min() < 0 or array.max() >= self._vocabulary:
            odd = array.min() if array.min() < 0 else array.max()
            raise ConfigError(
                f"{where} has the token {odd}, and the model knows {self._vocabulary}"
            )
        return array


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
