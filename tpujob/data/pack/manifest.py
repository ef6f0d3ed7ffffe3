"""What a packed set says of itself: the manifest, and the index of its files. Pure.

The manifest is written last: where there is none, there is no packed set. A file that it does not name is not part of
the set. Equal sets have equal manifests, byte for byte.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Set
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from tpujob.errors import BadRequest

NAME = "manifest.json"
_FORMAT = "tpujob.pack"
_VERSION = 1
#: what files of a packed set are called, besides the manifest: by their content, so that two sets never share a name
#: for different bytes
_OWN = re.compile(
    r"(\d{5,}-[0-9a-f]{16}\.arrayrecord|(index-[0-9a-f]{16}\.jsonl\.gz|labels-[0-9a-f]{16}\.u4))"
)
Natural = Annotated[int, Field(ge=0, strict=True)]
#: labels are listed in the manifest up to so many
MOST_LABELS = 10_000


class BadManifest(BadRequest):
    """The manifest, or the index that belongs to it, is not what this version can use."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        again = "copy the set again, or make it again: `tpujob data pack --replace`"
        super().__init__(message, hint=hint or again)


@dataclass(frozen=True, slots=True)
class SetFile:
    name: Annotated[str, Field(pattern=f"^(?:{_OWN.pattern})$")]
    bytes: Natural
    crc32c: Natural
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard(SetFile):
    """It holds `records` files of `content` bytes together; their lines are `index_bytes` bytes of the index, from byte
    `index_start`, a gzip member of its own."""

    records: Natural
    content: Natural
    index_start: Natural
    index_bytes: Natural


@dataclass(frozen=True, slots=True)
class Manifest:
    records: Natural
    content: Natural  #: bytes of all files
    order: str  #: `key`, or `shuffled by SEED`
    index: SetFile
    #: the first folders of the keys, sorted; empty: not each key has one
    labels: tuple[str, ...]
    label_ids: SetFile | None  #: for each record a little-endian uint32, which counts in `labels`
    shards: tuple[Shard, ...]

    @property
    def stored(self) -> int:
        """Bytes of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def files(self) -> list[SetFile]:
        """Everything but the manifest."""
        more = [self.index] + ([self.label_ids] if self.label_ids else [])
        return [*self.shards, *more]


_MANIFEST = TypeAdapter(Manifest)
_ENTRY = TypeAdapter(tuple[str, Natural, Natural])


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
    document = {"format": _FORMAT, "version": _VERSION, **asdict(manifest)}
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def decode(data: bytes) -> Manifest:
    """Raises BadManifest: it is no manifest, of a newer version, or contradicts itself."""
    try:
        document = json.loads(data)
        form, version = document["format"], document["version"]
    except (ValueError, KeyError, TypeError):
        form, version = "", None
    if form != _FORMAT or not isinstance(version, int):
        raise BadManifest(f"{NAME} is not the manifest of a packed set")
    if version > _VERSION:
        raise BadManifest(
            f"{NAME} has version {version}; this tpujob reads versions up to {_VERSION}",
            hint="install a newer tpujob",
        )
    try:
        manifest = _MANIFEST.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadManifest(f"{NAME} is damaged: {where}: {first['msg']}") from None
    counts = (
        sum(one.records for one in manifest.shards),
        sum(one.content for one in manifest.shards),
    )
    if counts != (manifest.records, manifest.content):
        raise BadManifest(f"{NAME} is damaged: its shards do not add up to its records and bytes")
    return manifest


def entry(line: bytes) -> IndexEntry:
    """Raises BadManifest. The key is taken as it is: whether a file may have it is another question."""
    try:
        return IndexEntry(*_ENTRY.validate_json(line))
    except ValidationError:
        raise BadManifest("the index is damaged: a line is not [key, size, crc32c]") from None


def label_of(key: str) -> str:
    """The first folder of a key; empty: it is in none."""
    folder, slash, _ = key.partition("/")
    return folder if slash else ""


def with_labels(found: Set[str], more: Iterable[str]) -> Set[str]:
    """All labels together; the empty one alone where a key has none, or they are too many."""
    both = found | set(more)
    return {""} if "" in both or len(both) > MOST_LABELS else both


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
        raise BadManifest(f"the index is damaged at {shard.name}: {error}") from None
    if found != shard.records:
        raise BadManifest(f"the index has another number of files than {shard.name}")
