"""Packed sets as rows: what `tpujob data pack` made of `class/name.npy` files. docs/data.md has the format.

Grain reads the records at random; rows are decoded when they are asked for, so a set may be larger than memory.
The set lies in a folder of this host, or in a bucket: of a shard only the records that are asked for are fetched.
"""

# Grain is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from workloads.data.places import no_folder
from workloads.data.rows import Dataset, InMemory, Numbers, Rows, split
from workloads.frame.config import ConfigError

_FORMAT = ("tpujob.pack", 1)
#: A fifth of the set is for the test, but no more rows than these: all hosts hold all of them.
_MAX_TESTED = 2048
_FEWEST = 5
#: In an error of ArrayRecord about bytes that it has read, and not about a bucket.
_DAMAGE = re.compile("hash|corrupt|invalid|data loss", re.IGNORECASE)


class _Folder:
    """A folder of this host, or a prefix `gs://`, and the files in it."""

    def __init__(self, place: str) -> None:
        import fsspec

        self._storage, self._path = fsspec.url_to_fs(place)

    def exists(self) -> bool:
        return self._storage.isdir(self._path)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file, by name."""
        files = self._storage.ls(self._path, detail=True)
        return {file["name"].rpartition("/")[2]: file["size"] for file in files}

    def read(self, name: str) -> bytes:
        return self._storage.cat_file(f"{self._path}/{name}")

    def open(self, name: str) -> BinaryIO:
        return self._storage.open(f"{self._path}/{name}", "rb")


class PackedSet:
    """The records of a set, by number. Any number of threads may read."""

    def __init__(self, place: str, manifest: dict[str, Any], records: Any) -> None:
        self.place = place
        #: A hash of the content, independent of its folder.
        self.identity = identity(place)
        self._manifest = manifest
        self._records = records

    def __len__(self) -> int:
        return self._manifest["records"]

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """The bytes of these records. Raises ConfigError for one that is damaged: ArrayRecord has a hash of each; and
        RuntimeError or ValueError for a bucket that cannot be reached."""
        try:
            return self._records.__getitems__(list(numbers))
        except (ValueError, RuntimeError, IndexError) as error:
            if "://" in self.place and not _DAMAGE.search(str(error)):
                raise
            raise ConfigError(
                f"data={self.place}: one of the records {_shown(numbers)} cannot be read; copy the set again ({error})"
            ) from error

    @property
    def classes(self) -> list[str]:
        """The names of the classes. Raises ConfigError if there are none."""
        if not self._manifest["label_ids"]:
            raise ConfigError(
                f"data={self.place}: its files lie in no folders, which would be their classes"
            )
        return self._manifest["labels"]

    @cached_property
    def labels(self) -> NDArray[np.integer]:
        """The class of each record, where there are classes."""
        return np.frombuffer(_Folder(self.place).read(self._manifest["label_ids"]["name"]), "<u4")

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The bytes of each record, from the index: no record is read for it."""
        with (
            _Folder(self.place).open(self._manifest["index"]["name"]) as file,
            gzip.open(file, "rt", encoding="utf-8") as lines,
        ):
            return np.array([json.loads(line)[1] for line in lines], dtype=np.int64)

    def parts(self) -> tuple[NDArray[np.integer], Numbers]:
        """Return the records for the test, and those to train on. Raises ConfigError if they are too few."""
        if len(self) < _FEWEST:
            raise ConfigError(
                f"data={self.place}: {len(self)} records are too few, of {_FEWEST} one is for the test"
            )
        return split(len(self), min(len(self) // _FEWEST, _MAX_TESTED))


def open_set(folder: str) -> PackedSet:
    """Return the set in a folder of this host, or below a prefix `gs://`. Raises ConfigError if it is missing, empty or
    cut short."""
    import grain

    manifest = _manifest(folder)
    sizes = _Folder(folder).sizes()
    for file in (
        *manifest["shards"],
        manifest["index"],
        *([manifest["label_ids"]] if manifest["label_ids"] else []),
    ):
        size = sizes.get(file["name"], 0)
        if size != file["bytes"]:
            raise ConfigError(
                f"data={folder}: {file['name']} has {size} bytes instead of {file['bytes']}; copy it again"
            )
    if not manifest["records"]:
        raise ConfigError(f"data={folder}: the set has no records")
    # with the numbers of their records, shards are opened once they are read
    shards = [
        f"{folder.rstrip('/')}/{shard['name']}[0:{shard['records']}]"
        for shard in manifest["shards"]
    ]
    records = grain.sources.ArrayRecordDataSource(shards)
    return PackedSet(folder, manifest, records)


class Arrays:
    """Some of the records of a set: `x` an array of numbers, flat; `y` the class."""

    def __init__(self, source: PackedSet, which: Numbers) -> None:
        self._source = source
        self._which = which

    def __len__(self) -> int:
        return len(self._which)

    def take(self, which: NDArray[np.integer]) -> Rows:
        numbers = self._which[which]
        records = self._source.read(numbers.tolist())
        arrays = [
            read_array(record, number).astype(np.float32).ravel()
            for record, number in zip(records, numbers.tolist(), strict=True)
        ]
        if len({len(array) for array in arrays}) > 1:
            raise ConfigError("the arrays of the packed set have different sizes")
        return {"x": np.stack(arrays), "y": self._source.labels[numbers].astype(np.int32)}


def dataset(folder: str) -> Dataset:
    """Return a set of arrays with classes, split for training and test. Raises ConfigError as `open_set` does, and for
    too few classes or records."""
    source = open_set(folder)
    classes = len(source.classes)
    tested, trained = source.parts()
    test = InMemory(Arrays(source, tested).take(np.arange(len(tested))))
    return Dataset(Arrays(source, trained), test, classes, readers=2)


def identity(folder: str) -> str:
    """Return a hash of the set's content, independent of its folder. Raises ConfigError."""
    _manifest(folder)
    return hashlib.sha256(_manifest_bytes(folder)).hexdigest()[:16]


def read_array(record: bytes, number: int) -> NDArray[np.number]:
    """Return the array of a `.npy` file. Raises ConfigError for any other content.

    Most arrays of a set have one header, which is parsed once: `np.load` takes 40 us.
    """
    try:
        start = 10 + int.from_bytes(record[8:10], "little")
        shape, by_columns, dtype = _header(record[:start])
        numbers = np.frombuffer(record, dtype, offset=start)
        if not np.issubdtype(dtype, np.number):
            raise ValueError("no numbers")
        return numbers.reshape(shape, order="F" if by_columns else "C")
    except (ValueError, EOFError, TypeError) as error:
        raise ConfigError(
            f"record {number} of the packed set is no .npy array of numbers"
        ) from error


def _manifest(folder: str) -> dict[str, Any]:
    try:
        manifest = json.loads(_manifest_bytes(folder))
        valid = (manifest["format"], manifest["version"]) == _FORMAT
    except (FileNotFoundError, NotADirectoryError) as error:
        if not _Folder(folder).exists():
            raise no_folder(folder) from error
        raise ConfigError(
            f"data={folder} is no packed set, as it has no manifest.json; `tpujob data pack` makes one"
        ) from error
    except (ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise ConfigError(f"data={folder}: manifest.json is not one of a packed set of version 1")
    return manifest


@lru_cache(maxsize=4)
def _manifest_bytes(folder: str) -> bytes:
    """The manifest, which names all other files and is asked for at each checkpoint."""
    return _Folder(folder).read("manifest.json")


@lru_cache(maxsize=16)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type in a header of version 1.0, which `np.save` writes. Raises ValueError for
    another."""
    file = io.BytesIO(head)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not of version 1.0")
    return np.lib.format.read_array_header_1_0(file)


def _shown(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + ", ..." * (len(numbers) > 5)
