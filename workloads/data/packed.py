"""Packed sets as rows: what `tpujob data pack` made of `class/name.npy` files. docs/data.md has the format.

Grain reads the records at random; rows are decoded when they are asked for, so a set may be larger than memory.
The set lies in a folder of this host: copied, or mounted.
"""

# Grain is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.data.rows import Dataset, InMemory, Rows, split
from workloads.frame.config import ConfigError

_FORMAT = ("tpujob.pack", 1)
#: A fifth of the set is for the test, but no more rows than these: all hosts hold all of them.
_MOST_TESTED = 2048
_FEWEST = 5


class Packed:
    """Some of the records of a set: `x` an array of numbers, flat; `y` the class."""

    def __init__(
        self, records: Any, labels: NDArray[np.integer], which: NDArray[np.integer]
    ) -> None:
        self._records = records
        self._labels = labels
        self._which = which

    def __len__(self) -> int:
        return len(self._which)

    def take(self, which: NDArray[np.integer]) -> Rows:
        numbers = self._which[which]
        records = self._records.__getitems__(numbers.tolist())
        arrays = [_array(record, number) for record, number in zip(records, numbers, strict=True)]
        if len({len(array) for array in arrays}) > 1:
            raise ConfigError("the arrays of the packed set have different sizes")
        return {"x": np.stack(arrays), "y": self._labels[numbers].astype(np.int32)}


def dataset(folder: str) -> Dataset:
    """The set, split for training and test. Raises ConfigError for one that is missing, cut short or has no classes.

    A byte that is wrong in a record is found when it is read: ArrayRecord has a hash for each chunk.
    """
    import grain

    place = Path(folder)
    said = _manifest(place)
    if not said["label_ids"]:
        raise ConfigError(
            f"data={folder}: its files lie in no folders, which would be their classes"
        )
    if said["records"] < _FEWEST:
        raise ConfigError(
            f"data={folder}: {said['records']} records are too few, of {_FEWEST} one is for the test"
        )
    for file in (*said["shards"], said["label_ids"]):
        found = (place / file["name"]).stat().st_size if (place / file["name"]).exists() else 0
        if found != file["bytes"]:
            raise ConfigError(
                f"data={folder}: {file['name']} has {found} bytes instead of {file['bytes']}; copy it again"
            )
    records = grain.sources.ArrayRecordDataSource([str(place / s["name"]) for s in said["shards"]])
    labels = np.fromfile(place / said["label_ids"]["name"], "<u4")
    if not len(records) == len(labels) == said["records"]:
        raise ConfigError(f"data={folder}: {len(records)} records instead of {said['records']}")
    tested, trained = split(len(records), min(len(records) // _FEWEST, _MOST_TESTED))
    test = InMemory(Packed(records, labels, tested).take(np.arange(len(tested))))
    return Dataset(Packed(records, labels, trained), test, len(said["labels"]), readers=2)


def identity(folder: str) -> str:
    """Of the set's content, wherever it lies. Raises ConfigError."""
    _manifest(Path(folder))
    return hashlib.sha256((Path(folder) / "manifest.json").read_bytes()).hexdigest()[:16]


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        said = json.loads((folder / "manifest.json").read_bytes())
        known = (said["format"], said["version"]) == _FORMAT
    except OSError as error:
        raise ConfigError(
            f"data={folder}: no packed set in a folder of this host ({error.strerror}); "
            "`tpujob data sync` copies one from a bucket"
        ) from error
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ConfigError(f"data={folder}: manifest.json is none of a packed set of version 1")
    return said


@lru_cache(maxsize=16)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Raises ValueError for what is none of version 1.0, which is what `np.save` writes."""
    file = io.BytesIO(head)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not of version 1.0")
    return np.lib.format.read_array_header_1_0(file)


def _array(record: bytes, number: int) -> NDArray[np.float32]:
    """Flat, in the order of C. Most arrays of a set have one header, which is parsed once: `np.load` takes 40 us."""
    try:
        start = 10 + int.from_bytes(record[8:10], "little")
        shape, by_columns, dtype = _header(record[:start])
        found = np.frombuffer(record, dtype, offset=start)
        return found.reshape(shape, order="F" if by_columns else "C").astype(np.float32).ravel()
    except (ValueError, EOFError, TypeError) as error:
        raise ConfigError(
            f"record {number} of the packed set is no .npy array of numbers"
        ) from error
