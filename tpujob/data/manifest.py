"""The manifest and the index of a packed set.

The manifest names all files of the set and is written last: without a manifest there is no set. Equal sets have equal
manifests, byte for byte.
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
#: names of a set's other files: a hash of the content is in them, so that sets never have one name for different bytes
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
    """A shard: one record for each packed file."""

    records: Natural
    content: Natural  #: bytes of the packed files
    index_start: Natural  #: offset of the shard's lines in the index: one gzip member
    index_bytes: Natural  #: size of that member


@dataclass(frozen=True, slots=True)
class Manifest:
    format: Literal["tpujob.pack"]
    version: Annotated[int, Field(ge=1, le=VERSION, strict=True)]
    records: Natural
    content: Natural  #: bytes of all packed files
    order: str  #: `key`, or `shuffled by SEED`
    index: SetFile
    labels: tuple[str, ...]  #: the first folders of the keys, sorted; empty: some keys have none
    label_ids: SetFile | None  #: a little-endian uint32 for each record: its index in `labels`
    shards: tuple[Shard, ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1).encode() + b"\n"

    def files(self) -> list[SetFile]:
        """Return all files but the manifest."""
        return [*self.shards, self.index, *([self.label_ids] if self.label_ids else [])]


_MANIFEST = TypeAdapter(Manifest)
_ENTRY = TypeAdapter(tuple[str, Natural, Natural])
_MAX_LINE = 32_768  #: bytes of a line of the index: a key of 4,096 bytes, all escaped


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the index: the file of one record."""

    key: str
    size: int
    crc32c: int

    def encode(self) -> bytes:
        return json.dumps([self.key, self.size, self.crc32c], ensure_ascii=False).encode() + b"\n"


def is_own(name: str) -> bool:
    """Return whether files of packed sets can have that name."""
    return name == NAME or _OWN.fullmatch(name) is not None


def decode(data: bytes) -> Manifest:
    """Return the manifest. Raises BadRequest if it is invalid, inconsistent, or of a newer version."""
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
    """Return the untrusted entries of a shard, reading no more lines than its records. Raises BadRequest."""
    with open(index, "rb") as file:
        file.seek(shard.index_start)
        member = file.read(shard.index_bytes)
    try:
        with gzip.GzipFile(fileobj=BytesIO(member)) as unpacked:
            lines = iter(lambda: unpacked.readline(_MAX_LINE), b"")
            first_lines = islice(lines, shard.records + 1)
            entries = [IndexEntry(*_ENTRY.validate_json(line)) for line in first_lines]
    except (EOFError, zlib.error, gzip.BadGzipFile, ValidationError) as error:
        raise _unusable(f"the index is damaged at {shard.name}: {error}") from None
    if len(entries) != shard.records:
        raise _unusable(f"the index has another number of files than {shard.name}")
    return entries


def describe_file(path: Path, name: str = "") -> SetFile:
    """Return size and checksums of a file, with that name, in which {} becomes 16 digits of its SHA-256."""
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
    """Delete the stage, and its parent folder if that is empty then."""
    shutil.rmtree(stage, ignore_errors=True)
    with suppress(OSError):
        stage.parent.rmdir()
