"""What a packed set says of itself: the manifest, and the index of its files. Pure.

The manifest is written last: where there is none, there is no packed set. A file that it does not name is not part of
the set. Equal sets have equal manifests, byte for byte.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from tpujob.errors import BadRequest

NAME = "manifest.json"
_FORMAT = "tpujob.pack"
_VERSION = 1
#: what files of a packed set are called, besides the manifest: by their content, so that two sets never share a name
#: for different bytes
_OWN = re.compile(
    r"(\d{5,}-[0-9a-f]{16}\.arrayrecord|(index-[0-9a-f]{16}\.jsonl\.gz|labels-[0-9a-f]{16}\.u4))"
)
#: labels are listed in the manifest up to so many
MOST_LABELS = 10_000


class BadManifest(BadRequest):
    """The manifest, or the index that belongs to it, is not what this version can use."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        again = "copy the set again, or make it again: `tpujob data pack --replace`"
        super().__init__(message, hint=hint or again)


@dataclass(frozen=True, slots=True)
class SetFile:
    """One file of the packed set."""

    name: str
    bytes: int
    crc32c: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    """`file` holds `records` files of `content` bytes together; their lines are `index_bytes` bytes of the index, from
    byte `index_start`, a gzip member of its own."""

    file: SetFile
    records: int
    content: int
    index_start: int
    index_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    order: str  #: `key`, or `shuffled by SEED`
    shards: tuple[Shard, ...]
    index: SetFile
    labels: tuple[
        str, ...
    ] = ()  #: the first folders of the keys, sorted; empty: not each key has one
    label_ids: SetFile | None = (
        None  #: for each record a little-endian uint32, which counts in `labels`
    )

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def content(self) -> int:
        """Bytes of all files."""
        return sum(shard.content for shard in self.shards)

    @property
    def stored(self) -> int:
        """Bytes of all shards."""
        return sum(shard.file.bytes for shard in self.shards)

    def files(self) -> list[SetFile]:
        """Everything but the manifest."""
        more = [self.index] + ([self.label_ids] if self.label_ids else [])
        return [shard.file for shard in self.shards] + more


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the index: a file, in the place of its record."""

    key: str
    size: int
    crc32c: int

    def line(self) -> bytes:
        return json.dumps([self.key, self.size, self.crc32c], ensure_ascii=False).encode() + b"\n"


def is_own(name: str) -> bool:
    """Whether a packed set can have a file of that name."""
    return name == NAME or _OWN.fullmatch(name) is not None


def encode(manifest: Manifest) -> bytes:
    document: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "records": manifest.records,
        "content": manifest.content,
        "order": manifest.order,
        "index": asdict(manifest.index),
        "labels": list(manifest.labels),
        "label_ids": asdict(manifest.label_ids) if manifest.label_ids else None,
        "shards": [
            {
                **asdict(shard.file),
                "records": shard.records,
                "content": shard.content,
                "index_start": shard.index_start,
                "index_bytes": shard.index_bytes,
            }
            for shard in manifest.shards
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def decode(data: bytes) -> Manifest:
    """Raises BadManifest: it is no manifest, of a newer version, or contradicts itself."""
    try:
        document = json.loads(data)
        form, version = document["format"], document["version"]
    except (ValueError, KeyError, TypeError):
        raise BadManifest(f"{NAME} is not the manifest of a packed set") from None
    if form != _FORMAT or not isinstance(version, int):
        raise BadManifest(f"{NAME} is not the manifest of a packed set")
    if version > _VERSION:
        raise BadManifest(
            f"{NAME} has version {version}; this tpujob reads versions up to {_VERSION}",
            hint="install a newer tpujob",
        )
    try:
        manifest = _manifest(document)
        counts = _natural(document["records"]), _natural(document["content"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadManifest(f"{NAME} is damaged: {error}") from None
    if counts != (manifest.records, manifest.content):
        raise BadManifest(f"{NAME} is damaged: its shards do not add up to its records and bytes")
    return manifest


def entry(line: bytes) -> IndexEntry:
    """Raises BadManifest. The key is taken as it is: whether a file may have it is another question."""
    try:
        fields = json.loads(line)
        key, size, crc32c = fields
        if not isinstance(key, str):
            raise TypeError
        key.encode()  # a lone surrogate is no name
        return IndexEntry(key, _natural(size), _natural(crc32c))
    except (ValueError, TypeError):
        raise BadManifest("the index is damaged: a line is not [key, size, crc32c]") from None


def label_of(key: str) -> str:
    """The first folder of a key; empty: it is in none."""
    folder, slash, _ = key.partition("/")
    return folder if slash else ""


def labels_of(keys: Iterable[str]) -> tuple[str, ...] | None:
    """Sorted; None: a key has none, or they are too many."""
    found: set[str] = set()
    for key in keys:
        found.add(label_of(key))
        if "" in found or len(found) > MOST_LABELS:
            return None
    return tuple(sorted(found))


class Labels:
    """Those of several shards together."""

    def __init__(self) -> None:
        self._found: set[str] | None = set()

    def add(self, some: tuple[str, ...] | None) -> None:
        """As `labels_of` has them."""
        if self._found is not None and some is not None:
            self._found.update(some)
        if some is None or len(self._found or ()) > MOST_LABELS:
            self._found = None

    @property
    def found(self) -> tuple[str, ...]:
        """Empty: there are none."""
        return tuple(sorted(self._found or ()))


def _manifest(document: Mapping[str, Any]) -> Manifest:
    ids = document["label_ids"]
    return Manifest(
        order=str(document["order"]),
        shards=tuple(
            Shard(
                _stored(one),
                _natural(one["records"]),
                _natural(one["content"]),
                _natural(one["index_start"]),
                _natural(one["index_bytes"]),
            )
            for one in _maps(document["shards"])
        ),
        index=_stored(document["index"]),
        labels=tuple(str(label) for label in document["labels"]),
        label_ids=_stored(ids) if ids else None,
    )


def _maps(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise TypeError("shards is no list")
    return cast(list[Mapping[str, Any]], value)


def _stored(fields: Mapping[str, Any]) -> SetFile:
    name = str(fields["name"])
    if not _OWN.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a file of a packed set")
    return SetFile(
        name, _natural(fields["bytes"]), _natural(fields["crc32c"]), str(fields["sha256"])
    )


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no number of records or bytes")
    return value


# The index of one shard ----------------------------------------------------------------------------------------------


#: bytes of a line, at most: a key of 4,096 bytes, each escaped
_LONGEST = 32_768


def lines(path: Path, shard: Shard) -> Iterator[IndexEntry]:
    """As many as the shard has records. Raises BadManifest."""
    found = 0
    try:
        with open(path, "rb") as file:
            file.seek(shard.index_start)
            with gzip.GzipFile(fileobj=BytesIO(file.read(shard.index_bytes))) as member:
                while line := member.readline(_LONGEST):
                    found += 1
                    if found > shard.records:
                        break
                    yield entry(line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadManifest(f"the index is damaged at {shard.file.name}: {error}") from None
    if found != shard.records:
        raise BadManifest(f"the index has another number of files than {shard.file.name}")
