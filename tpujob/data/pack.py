"""Packs many small files into a few ArrayRecord shards; `tpujob.data.unpack` restores the files.

Files of the set appear in this order: shards, index, labels, and last the manifest, which names them all. Each is
written to a stage, and gets its name once it is complete and verified. Memory grows by four bytes with each packed
file, for its label. docs/data.md describes how programs read a set.
"""

import gzip
import hashlib
import os
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import islice
from pathlib import Path

from tpujob.data import records
from tpujob.data.checksums import extend
from tpujob.data.keys import PARTS_FOLDER, exclusive_lock, raising_tpujob_error
from tpujob.data.manifest import (
    FORMAT,
    NAME,
    VERSION,
    IndexEntry,
    Manifest,
    SetFile,
    Shard,
    decode,
    describe_file,
    is_own,
    remove_stage,
)
from tpujob.data.objects import Changed, LocalFile, Problems
from tpujob.data.sync.endpoints import files_of
from tpujob.data.sync.run import SyncProgress
from tpujob.data.sync.upload import check_unchanged, open_unchanged
from tpujob.errors import BadRequest, Conflict, NotFound, TpujobError
from tpujob.protocol.left_out import LeftOut

LARGEST = 256 << 20  #: most bytes of a packed file: records are in memory as a whole
_MAX_RECORDS = 32_768  #: most records of a shard: the list of its files is in memory
_MAX_LABELS = 10_000
_THREADS = 4


class Labels:
    """The first folders of the keys. A set has no labels if a key has no folder, or beyond _MAX_LABELS."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # in the order of `add`
        self._ids = array("I")
        self._usable = True

    def add(self, key: str) -> None:
        """Add the key of the next record."""
        label, slash, _ = key.partition("/")
        self._usable = self._usable and bool(slash)
        if self._usable:
            self._ids.append(self._numbers.setdefault(label, len(self._numbers)))
            self._usable = len(self._numbers) <= _MAX_LABELS

    def names(self) -> tuple[str, ...]:
        """Return the labels, sorted."""
        return tuple(sorted(self._numbers)) if self._usable else ()

    def encode(self) -> bytes:
        """Return the index in `names` of each record's label, as `Manifest.label_ids`."""
        rank = {name: number for number, name in enumerate(self.names())}
        ranks = [rank[name] for name in self._numbers]
        ids = array("I", (ranks[number] for number in self._ids))
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tobytes()


@dataclass(slots=True)
class PackSummary(Problems):
    """The files to pack, or that were packed."""

    order: str = "key"  #: the order of the records: `key`, or `shuffled by SEED`
    files: int = 0
    bytes: int = 0
    labels: Labels = field(default_factory=Labels)
    shards: int = 0  #: approximate before shuffled files are packed
    shard_bytes: int = 0  #: 0: nothing is packed yet

    def count(self, run: list[LocalFile]) -> list[LocalFile]:
        """Count the files of one more shard, and return them."""
        self.shards += 1
        self.files += len(run)
        self.bytes += sum(file.size for file in run)
        for file in run:
            self.labels.add(file.key)
        return run


class Pack:
    """A packer of one folder into one set."""

    def __init__(self, source: str, *, shard_bytes: int, seed: int | None = None) -> None:
        """`seed` shuffles the records; None: the order of keys. Raises NotFound, BadRequest."""
        if not os.path.exists(source):
            raise NotFound(f"there is no folder {source}")
        if not os.path.isdir(source):
            raise BadRequest(f"{source} is not a folder", hint="name the folder of the files")
        self._folder = os.path.realpath(os.fsencode(source))
        self._name = source
        self._size, self._seed = shard_bytes, seed
        self._order = "key" if seed is None else f"shuffled by {seed}"

    def survey(self) -> PackSummary:
        """Return the files to pack, without reading them. Raises BadRequest if there are none."""
        summary = PackSummary(order=self._order)
        for run in split_into_shards(_files_to_pack(self._folder, summary), self._size):
            summary.count(run)
        if not summary.files:
            raise BadRequest(f"there is no file in {self._name} that can be packed")
        return summary

    def run(self, target: str, progress: SyncProgress, *, replace: bool = False) -> PackSummary:
        """Write and verify the set in the folder `target`. Safe to repeat after any end. `replace`: replace another set
        there.

        Raises BadRequest for a target that is not writable or has other files, Conflict for a file that changes
        meanwhile, IllegalInState while another process writes there, and TpujobError.
        """
        place = _Place(target)
        stage = os.path.realpath(os.fsencode(place.stage))
        if stage.startswith(self._folder.rstrip(b"/") + b"/"):
            raise BadRequest(
                f"{place.stage} is in {self._name}: the set would be packed into itself",
                hint="name a folder beside it",
            )
        survey = self.survey()
        place.prepare()
        another = BadRequest(
            f"there is another packed set at {target}, which is kept",
            hint="name another place, or replace it: --replace",
        )
        message = f"another `tpujob data` command writes to {target}"
        with raising_tpujob_error(), exclusive_lock(place.stage / "lock", message):
            old = None if replace else place.manifest()
            counts = survey.files, survey.bytes, survey.order
            if old and (old.records, old.content, old.order) != counts:
                raise another  # before files are read
            progress.planned(survey.bytes)
            summary = PackSummary(order=self._order)
            manifest = self._write_files(place, progress, summary)
            if old not in (None, manifest):
                raise another
            place.finish(manifest)
        return summary

    def _write_files(
        self, place: "_Place", progress: SyncProgress, summary: PackSummary
    ) -> Manifest:
        """Write all files but the manifest, and return the manifest. Completes `summary`."""
        files = _files_to_pack(self._folder, summary)
        if self._seed is not None:
            files = _shuffled(files, self._seed)
        shards: list[Shard] = []
        with (place.stage / "index.part").open("wb") as index:
            runs = map(summary.count, split_into_shards(files, self._size))
            for shard, lines in _ShardWriter(place, progress).write_all(enumerate(runs)):
                shards.append(replace(shard, index_start=index.tell()))
                index.write(lines)
        if not shards:
            raise Conflict(f"the files of {self._name} went away while they were being packed")
        summary.shard_bytes = sum(shard.bytes for shard in shards)
        labels = summary.labels.names()
        if labels:
            (place.stage / "labels.part").write_bytes(summary.labels.encode())
        return Manifest(
            format=FORMAT,
            version=VERSION,
            records=summary.files,
            content=summary.bytes,
            order=summary.order,
            index=place.publish("index.part", "index-{}.jsonl.gz"),
            labels=labels,
            label_ids=place.publish("labels.part", "labels-{}.u4") if labels else None,
            shards=tuple(shards),
        )


class _Place:
    """The folder of a set, which has no other files."""

    def __init__(self, folder: str) -> None:
        self._name = folder
        self._folder = Path(os.path.realpath(folder))
        self.stage = self._folder / PARTS_FOLDER / "pack"  #: unnamed files; no link is followed

    def prepare(self) -> None:
        """Create the stage. Raises BadRequest if the folder is not writable or has other files."""
        try:
            names = os.listdir(self._folder) if self._folder.exists() else []
            others = [name for name in names if not is_own(name) and name != PARTS_FOLDER]
            if not others:
                self.stage.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"cannot write to {self._name}: {error.strerror}") from error
        if others:
            raise BadRequest(
                f"{self._name} holds other files, such as {min(others)}",
                hint="name a new or empty folder, or one that `tpujob data pack` made",
            )

    def manifest(self) -> Manifest | None:
        """Return the manifest, or None if there is no packed set. Raises BadRequest."""
        try:
            return decode((self._folder / NAME).read_bytes())
        except FileNotFoundError:
            return None

    def publish(self, unfinished: str, name: str) -> SetFile:
        """Move a file from the stage to its name, durably; {} in the name is that of `describe_file`."""
        path = self.stage / unfinished
        file = describe_file(path, name)
        _sync(path)
        os.replace(path, self._folder / file.name)
        _sync(self._folder)
        return file

    def finish(self, manifest: Manifest) -> None:
        """Publish the manifest, then delete the files of earlier sets."""
        (self.stage / "manifest.part").write_bytes(manifest.encode())
        self.publish("manifest.part", NAME)
        keep = {NAME, *(file.name for file in manifest.files())}
        for name in os.listdir(self._folder):
            if is_own(name) and name not in keep:
                (self._folder / name).unlink()
        remove_stage(self.stage)


def _sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# Shards ---------------------------------------------------------------------------------------------------------------


class _ShardWriter:
    """A writer that reads each shard back and compares it before the shard gets its name."""

    def __init__(self, place: _Place, progress: SyncProgress) -> None:
        self._place, self._progress = place, progress
        self._stopped = False

    def write_all(
        self, tasks: Iterator[tuple[int, list[LocalFile]]]
    ) -> Iterator[tuple[Shard, bytes]]:
        """Write a few shards at a time. Yield them in order, with `index_start` 0, and their lines of the index as a
        gzip member. Raises Conflict for a changed file, TpujobError for a wrong shard, OSError."""
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                while batch := list(islice(tasks, _THREADS)):
                    yield from pool.map(self._write_shard, batch)
            except BaseException:
                self._stopped = True
                raise

    def _write_shard(self, task: tuple[int, list[LocalFile]]) -> tuple[Shard, bytes]:
        number, files = task
        path = self._place.stage / f"{number:05d}.part"
        entries: list[IndexEntry] = []
        try:
            records.write(str(path), self._read_files(files, entries))
            for _ in records.read(str(path), entries):
                pass
            file = self._place.publish(path.name, f"{number:05d}-{{}}.arrayrecord")
        except records.Damaged as error:
            raise TpujobError(
                f"shard {number} was not written as it should be: {error}",
                hint="the disk or the memory of this machine may be bad",
            ) from None
        finally:
            path.unlink(missing_ok=True)
        lines = BytesIO()
        with gzip.GzipFile("", "wb", 6, lines, mtime=0) as index:
            index.writelines(map(IndexEntry.encode, entries))
        counts = len(entries), sum(entry.size for entry in entries), 0, len(lines.getvalue())
        shard = Shard(file.name, file.bytes, file.crc32c, file.sha256, *counts)
        return shard, lines.getvalue()

    def _read_files(self, files: list[LocalFile], entries: list[IndexEntry]) -> Iterator[bytes]:
        """Yield the contents of the files, and append their entries."""
        for file in files:
            if self._stopped:
                raise TpujobError("the pack was ended")
            data = _read_file(file)
            entries.append(IndexEntry(file.key, len(data), extend(0, data)))
            yield data
            self._progress.moved(len(data))


def _read_file(file: LocalFile) -> bytes:
    try:
        with open_unchanged(file) as content:
            data = content.read()
            check_unchanged(file, content)
            if len(data) != file.size:
                raise Changed
    except (Changed, FileNotFoundError):
        raise Conflict(
            f"{file.key} was changed while the set was being packed",
            hint="run the same command again when nothing writes to the folder",
        ) from None
    except OSError as error:
        raise TpujobError(f"{file.key} cannot be read: {error.strerror}") from error
    return data


# Files of a shard -----------------------------------------------------------------------------------------------------


def _files_to_pack(folder: bytes, left_out: Problems) -> Iterator[LocalFile]:
    for file in files_of(folder):
        if isinstance(file, LeftOut):
            left_out.note(file)
        elif file.size > LARGEST:
            reason = f"it has more than {LARGEST >> 20} MiB: copy it with `tpujob data sync`"
            left_out.note(LeftOut(file.key, reason))
        else:
            yield file


def split_into_shards(
    files: Iterable[LocalFile], size: int, limit: int = _MAX_RECORDS
) -> Iterator[list[LocalFile]]:
    """Yield consecutive files of at most `size` bytes and `limit` files together; a larger file is alone."""
    run: list[LocalFile] = []
    run_bytes = 0
    for file in files:
        if run and (run_bytes + file.size > size or len(run) == limit):
            yield run
            run, run_bytes = [], 0
        run.append(file)
        run_bytes += file.size
    if run:
        yield run


def _shuffled(files: Iterable[LocalFile], seed: int) -> Iterator[LocalFile]:
    """Yield the files in the order of a hash of seed and key, equal on all versions of Python. SQLite sorts them in a
    temporary file, as millions would not fit into memory."""

    def place(key: str) -> bytes:
        return hashlib.blake2b(key.encode(), key=str(seed).encode(), digest_size=16).digest()

    with closing(sqlite3.connect("")) as db:
        db.execute("CREATE TABLE files (place, key, path, size, mtime_ns, ctime_ns, inode)")
        db.executemany(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((place(file.key), file.key, file.path, *file.identity) for file in files),
        )
        for _, name, path, *identity in db.execute("SELECT * FROM files ORDER BY place"):
            yield LocalFile(name, path, *identity)
