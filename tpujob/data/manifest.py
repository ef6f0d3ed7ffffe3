"""A packed set: its files, the manifest that names them, and the index of what is in them.

The manifest is written last: where there is none, there is no packed set. A file that it does not name is not part of
the set. Equal sets have equal manifests, byte for byte.
"""

import gzip
import hashlib
import json
import re
import shutil
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tpujob.data.checksums import extend
from tpujob.errors import BadRequest

NAME = "manifest.json"
FORMAT: Final = "tpujob.pack"
VERSION: Final = 1
#: what files of a packed set are called, besides the manifest: by their content, so that two sets never share a name
#: for different bytes
_OWN = re.compile(
    r"(\d{5,}-[0-9a-f]{16}\.arrayrecord|(index-[0-9a-f]{16}\.jsonl\.gz|labels-[0-9a-f]{16}\.u4))"
)
Natural = Annotated[int, Field(ge=0, strict=True)]


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
    format: Literal["tpujob.pack"]
    version: Annotated[int, Field(ge=1, le=VERSION, strict=True)]
    records: Natural
    content: Natural  #: bytes of all files
    order: str  #: `key`, or `shuffled by SEED`
    index: SetFile
    #: the first folders of the keys, sorted; empty: not each key has one
    labels: tuple[str, ...]
    label_ids: SetFile | None  #: for each record a little-endian uint32, which counts in `labels`
    shards: tuple[Shard, ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1).encode() + b"\n"

    def files(self) -> list[SetFile]:
        """Everything but the manifest."""
        more = [self.index] + ([self.label_ids] if self.label_ids else [])
        return [*self.shards, *more]


_MANIFEST = TypeAdapter(Manifest)
_ENTRY = TypeAdapter(tuple[str, Natural, Natural])
#: bytes of a line of the index, at most: a key of 4,096 bytes, each escaped
_LONGEST = 32_768


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the index: a file, in the place of its record."""

    key: str
    size: int
    crc32c: int

    def encode(self) -> bytes:
        return json.dumps([self.key, self.size, self.crc32c], ensure_ascii=False).encode() + b"\n"


def is_own(name: str) -> bool:
    """Whether a packed set can have a file of that name."""
    return name == NAME or _OWN.fullmatch(name) is not None


def decode(data: bytes) -> Manifest:
    """Raises BadRequest: it is no manifest, of a newer version, or contradicts itself."""
    try:
        manifest = _MANIFEST.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _unusable(f"{NAME} is not that of a packed set: {where}: {first['msg']}") from None
    counts = (sum(s.records for s in manifest.shards), sum(s.content for s in manifest.shards))
    if counts != (manifest.records, manifest.content):
        raise _unusable(f"{NAME} is damaged: its shards do not add up to its records and bytes")
    return manifest


def _unusable(message: str) -> BadRequest:
    again = "copy the set again, or make it again: `tpujob data pack --replace`"
    return BadRequest(message, hint=f"{again}. A newer set needs a newer tpujob")


def entries_of(index: Path, shard: Shard) -> list[IndexEntry]:
    """As many as the shard has records; whether a file may have such a key is another question. No more is unpacked
    than so many lines. Raises BadRequest."""
    with open(index, "rb") as file:
        file.seek(shard.index_start)
        member = file.read(shard.index_bytes)
    try:
        with gzip.GzipFile(fileobj=BytesIO(member)) as unpacked:
            lines = iter(lambda: unpacked.readline(_LONGEST), b"")
            few = islice(lines, shard.records + 1)
            entries = [IndexEntry(*_ENTRY.validate_json(line)) for line in few]
    except (EOFError, zlib.error, gzip.BadGzipFile, ValidationError) as error:
        raise _unusable(f"the index is damaged at {shard.name}: {error}") from None
    if len(entries) != shard.records:
        raise _unusable(f"the index has another number of files than {shard.name}")
    return entries


def described(path: Path, name: str = "") -> SetFile:
    """The file as it is, under that name, in which {} becomes the first 16 digits of its SHA-256."""
    size = crc32c = 0
    sha256 = hashlib.sha256()
    with open(path, "rb", buffering=0) as content:
        while data := content.read(1 << 20):
            size += len(data)
            crc32c = extend(crc32c, data)
            sha256.update(data)
    digest = sha256.hexdigest()
    return SetFile(name.replace("{}", digest[:16]), size, crc32c, digest)


def remove_stage(stage: Path) -> None:
    """With its folder of unfinished files, unless others wait in there."""
    shutil.rmtree(stage, ignore_errors=True)
    with suppress(OSError):
        stage.parent.rmdir()
