"""Documents of text by number: a packed set, Parquet files, a folder of text files, or text that comes with Python.

Nothing here knows of tokens.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.data import packed
from workloads.data.parquet import Texts, is_parquet
from workloads.data.places import no_folder
from workloads.data.rows import DATASET_SEED
from workloads.frame.config import ConfigError

#: So many bytes are read at a time.
_GROUP = 8 << 20
#: Folders of the standard library that are no part of it, or whose text is about errors on purpose.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


class Documents(Protocol):
    """Texts that can be asked for by number, from several threads at a time."""

    place: str  #: what they were asked for by
    identity: str  #: of their content, wherever it lies
    sizes: NDArray[np.int64]  #: bytes of each; in Parquet files a mean

    def read(self, numbers: Sequence[int]) -> list[bytes]: ...
    def name(self, number: int) -> str: ...


def open_documents(place: str) -> Documents:
    """`stdlib`: the sources of Python's standard library without its tests, 12 MB. `pydoc`: what `help()` knows of the
    language, 0.5 MB of English. Else a packed set or Parquet files in a folder or a bucket, or a folder of text files,
    each a document; those that are hidden, and the `tokenizer.json` of the set, are none.

    Raises ConfigError for what is missing, empty or cut short.
    """
    if place == "pydoc":
        return _Topics()
    if place == "stdlib":
        return _standard_library()
    folder = Path(place)
    if is_parquet(place):
        return Texts(place)
    if "://" in place or (folder / "manifest.json").is_file():
        return Records(packed.open_set(place))
    if not folder.is_dir():
        raise no_folder(place)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return _Files(place, folder, [path for path in paths if _is_text(path.relative_to(folder))])


def _is_text(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path != Path("tokenizer.json")


class Records:
    """The records of a packed set."""

    def __init__(self, source: packed.PackedSet) -> None:
        self._source = source
        self.place = source.place
        self.identity = source.identity

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self._source.sizes

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return self._source.read(numbers)

    def name(self, number: int) -> str:
        return f"record {number}"


class _Files:
    """Files below a folder, in the order of their names."""

    def __init__(self, place: str, folder: Path, paths: list[Path]) -> None:
        if not paths:
            raise ConfigError(f"data={place}: there are no files in {folder}")
        self.place = place
        self._names = sorted(path.relative_to(folder).as_posix() for path in paths)
        self._folder = folder

    @cached_property
    def identity(self) -> str:
        return _digest(self._names, (self.read([i])[0] for i in range(len(self._names))))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        lengths = [(self._folder / name).stat().st_size for name in self._names]
        return np.array(lengths, dtype=np.int64)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [(self._folder / self._names[number]).read_bytes() for number in numbers]

    def name(self, number: int) -> str:
        return self._names[number]


def _standard_library() -> _Files:
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [
        path
        for path in folder.rglob("*.py")
        if _LEFT_OUT.isdisjoint(path.relative_to(folder).parts)
    ]
    return _Files("stdlib", folder, paths)


class _Topics:
    """The topics of `help()` about the language."""

    place = "pydoc"

    def __init__(self) -> None:
        from pydoc_data.topics import topics

        self._names = sorted(topics)
        self._texts = [topics[name].encode() for name in self._names]
        self.identity = _digest(self._names, self._texts)
        self.sizes = np.array([len(text) for text in self._texts], dtype=np.int64)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [self._texts[number] for number in numbers]

    def name(self, number: int) -> str:
        return f"topic {self._names[number]}"


def _digest(names: Iterable[str], texts: Iterable[bytes]) -> str:
    """Return a hash of names and texts, which are equally many."""
    whole = hashlib.sha256()
    for name, text in zip(names, texts, strict=True):
        whole.update(f"{len(text)} {name}\n".encode())
        whole.update(text)
    return whole.hexdigest()[:16]


def in_order(documents: Documents) -> NDArray[np.integer]:
    """Return the numbers of the documents in the order of their stream of tokens: shuffled, always alike."""
    if isinstance(documents, Texts):
        return np.arange(len(documents.sizes))  # shuffled already, within what can be read at once
    return np.random.default_rng(DATASET_SEED).permutation(len(documents.sizes))


def in_groups(documents: Documents, order: Iterable[int]) -> Iterator[list[int]]:
    """Yield groups of document numbers, of some MiB each."""
    group: list[int] = []
    size = 0
    for number in order:
        group.append(int(number))
        size += int(documents.sizes[number])
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def read_text(documents: Documents, numbers: Sequence[int]) -> list[str]:
    """Return the texts of these documents. Raises ConfigError for a document that is not UTF-8 text."""
    return [
        _text(documents, number, document)
        for number, document in zip(numbers, documents.read(numbers), strict=True)
    ]


def _text(documents: Documents, number: int, document: bytes) -> str:
    try:
        return document.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"data={documents.place}: {documents.name(number)} is not UTF-8 text (byte {error.start}); "
            "tokenizer=bytes takes any"
        ) from None
