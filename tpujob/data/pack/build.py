"""One shard: written beside its place, read back and compared, hashed, and only then given its name.

What is known of a finished shard is kept in the stage, so that the next process does not make it again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tpujob.data.checksums import extend
from tpujob.data.objects import Changed, LocalFile
from tpujob.data.pack import records
from tpujob.data.pack.folder import FolderTarget, described
from tpujob.data.pack.manifest import IndexEntry, Shard
from tpujob.data.pack.workers import Workers
from tpujob.data.sync.run import SyncProgress
from tpujob.data.sync.upload import check_unchanged, opened
from tpujob.errors import Conflict, TpujobError


@dataclass(frozen=True, slots=True)
class Built:
    """A shard that has its name."""

    shard: Shard  #: as if it were the first of the index
    member: Path  #: its lines of the index, as a gzip member


class ShardBuilder:
    """Threads share it; each shard is made by one of them."""

    def __init__(self, target: FolderTarget, progress: SyncProgress, workers: Workers) -> None:
        self._target, self._progress, self._workers = target, progress, workers
        self._stage = target.stage

    def build(self, task: tuple[int, list[LocalFile]]) -> Built:
        """Raises Conflict for a file that changes, TpujobError for a shard that does not hold what was written,
        OSError, and what publishing raises. Repeatable: a shard that is there is not made again."""
        number, files = task
        plan = _digest(files)
        built = self._known(number, plan)
        if built and self._target.has(built.shard):
            for file in files:
                self._progress.moved(file.size)
            return built
        return self._made(number, files, plan)

    def _made(self, number: int, files: list[LocalFile], plan: str) -> Built:
        path, member = self._stage / f"{number:05d}.part", self._member(number)
        sizes, checksums = array("Q"), array("I")
        try:
            with open(member, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as index:
                records.write(str(path), self._contents(files, sizes, checksums, index))
            records.verify(str(path), sizes, checksums)
            stored = described(path, f"{number:05d}-{{}}.arrayrecord")
            counts = len(files), sum(sizes), 0, member.stat().st_size
            named = stored.name, stored.bytes, stored.crc32c, stored.sha256
            built = Built(Shard(*named, *counts), member)
            self._keep(number, plan, built)
            self._target.publish(path, stored)
        except records.Damaged as error:
            text = f"shard {number} was not written as it should be: {error}"
            raise TpujobError(
                text, hint="the disk or the memory of this machine may be bad"
            ) from None
        finally:
            path.unlink(missing_ok=True)
        return built

    def _contents(
        self, files: list[LocalFile], sizes: array[int], checksums: array[int], index: gzip.GzipFile
    ) -> Iterator[bytes]:
        for file in files:
            self._workers.go_on()
            data = _content(file)
            crc32c = extend(0, data)
            sizes.append(len(data))
            checksums.append(crc32c)
            index.write(IndexEntry(file.key, len(data), crc32c).line())
            yield data
            self._progress.moved(len(data))

    # what outlives a killed process

    def _member(self, number: int) -> Path:
        return self._stage / f"{number:05d}.index.gz"

    def _keep(self, number: int, plan: str, built: Built) -> None:
        facts = {
            "plan": plan,
            "shard": asdict(built.shard),
            "member": described(built.member).sha256,
        }
        new = self._stage / f"{number:05d}.new"
        new.write_text(json.dumps(facts), encoding="utf-8")
        os.replace(new, self._stage / f"{number:05d}.json")

    def _known(self, number: int, plan: str) -> Built | None:
        member = self._member(number)
        try:
            facts: Any = json.loads((self._stage / f"{number:05d}.json").read_bytes())
            if facts["plan"] != plan or facts["member"] != described(member).sha256:
                return None
            return Built(Shard(**facts["shard"]), member)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _content(file: LocalFile) -> bytes:
    try:
        with opened(file) as content:
            data = _whole(content, file.size)
            check_unchanged(file, content)
    except (Changed, FileNotFoundError):
        raise Conflict(
            f"{file.key} was changed while the set was being packed",
            hint="run the same command again when nothing writes to the folder",
        ) from None
    except OSError as error:
        raise TpujobError(f"{file.key} cannot be read: {error.strerror}") from error
    return data


def _whole(content: BinaryIO, size: int) -> bytes:
    data = content.read(size + 1)
    while 0 < len(data) < size and (more := content.read(size - len(data))):
        data += more
    if len(data) != size:
        raise Changed
    return data


def _digest(files: list[LocalFile]) -> str:
    """Of everything that the shard's bytes depend on."""
    digest = hashlib.sha256(records.OPTIONS.encode())
    for file in files:
        digest.update(repr((file.key, file.identity)).encode())
    return digest.hexdigest()
