"""Many small files as a few ArrayRecord shards: which files go into which shard, and how the set comes to its place.

What becomes visible comes in this order: shards, the index, the labels, and last the manifest, which names them all.
Each file is made beside its place and gets its name only when it is whole and verified. Memory grows by four bytes with
each file, for its label. What a program reads is described in docs/data.md; `tpujob.data.unpack` is the way back.
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
from tpujob.data.keys import PARTS_FOLDER, alone, explained
from tpujob.data.manifest import (
    FORMAT,
    NAME,
    VERSION,
    IndexEntry,
    Manifest,
    SetFile,
    Shard,
    decode,
    described,
    is_own,
    remove_stage,
)
from tpujob.data.objects import Changed, LeftOut, LocalFile, Problems
from tpujob.data.sync.endpoints import files_of
from tpujob.data.sync.run import SyncProgress
from tpujob.data.sync.upload import check_unchanged, opened
from tpujob.errors import BadRequest, Conflict, NotFound, TpujobError

#: bytes of a file that is packed, at most: a record is in memory as a whole
LARGEST = 256 << 20
_MOST_RECORDS = 32_768  #: in a shard: the list of its files is in memory
_MOST_LABELS = 10_000
_THREADS = 4


class Labels:
    """The first folders of the keys. There are none where a key has no folder, or they would be too many."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # in the order in which they came
        self._ids = array("I")
        self._usable = True

    def add(self, key: str) -> None:
        """Keys come in the order of the records."""
        label, slash, _ = key.partition("/")
        self._usable = self._usable and bool(slash)
        if self._usable:
            self._ids.append(self._numbers.setdefault(label, len(self._numbers)))
            self._usable = len(self._numbers) <= _MOST_LABELS

    def names(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted(self._numbers)) if self._usable else ()

    def encode(self) -> bytes:
        """Return for each record the place of its label in `names`, as the set has them."""
        rank = {name: number for number, name in enumerate(self.names())}
        ranks = [rank[name] for name in self._numbers]
        ids = array("I", (ranks[number] for number in self._ids))
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tobytes()


@dataclass(slots=True)
class PackSummary(Problems):
    """What there is to pack, or was packed."""

    order: str = "key"  #: of the records; or `shuffled by SEED`
    files: int = 0
    bytes: int = 0
    labels: Labels = field(default_factory=Labels)
    shards: int = 0  #: to pack in another order than that of the keys: about so many
    shard_bytes: int = 0  #: 0: nothing was packed

    def count(self, run: list[LocalFile]) -> list[LocalFile]:
        """Count the files of one more shard, and return them."""
        self.shards += 1
        self.files += len(run)
        self.bytes += sum(file.size for file in run)
        for file in run:
            self.labels.add(file.key)
        return run


class Pack:
    """One folder becomes one packed set."""

    def __init__(self, source: str, *, shard_bytes: int, seed: int | None = None) -> None:
        """`seed`: of the order of the records; None: that of their keys. Raises NotFound, BadRequest."""
        if not os.path.exists(source):
            raise NotFound(f"there is no folder {source}")
        if not os.path.isdir(source):
            raise BadRequest(f"{source} is not a folder", hint="name the folder of the files")
        self._folder = os.path.realpath(os.fsencode(source))
        self._name = source
        self._size, self._seed = shard_bytes, seed
        self._order = "key" if seed is None else f"shuffled by {seed}"

    def survey(self) -> PackSummary:
        """List the folder; no file is read. Raises BadRequest when there is nothing to pack."""
        found = PackSummary(order=self._order)
        for run in cut(_files_to_pack(self._folder, found), self._size):
            found.count(run)
        if not found.files:
            raise BadRequest(f"there is no file in {self._name} that can be packed")
        return found

    def run(self, target: str, progress: SyncProgress, *, replace: bool = False) -> PackSummary:
        """Afterwards the folder `target` has the packed set, verified. Safe to repeat after any end: without a manifest
        there is no set. `replace`: another set at the target gives way.

        Raises BadRequest when the target cannot be written to or holds something else, Conflict for a file that changes
        meanwhile, IllegalInState while another process writes there, and TpujobError.
        """
        place = _Place(target)
        stage = os.path.realpath(os.fsencode(place.stage))
        if stage.startswith(self._folder.rstrip(b"/") + b"/"):
            raise BadRequest(
                f"{place.stage} is in {self._name}: the set would be packed into itself",
                hint="name a folder beside it",
            )
        found = self.survey()
        place.prepare()
        another = BadRequest(
            f"there is another packed set at {target}, which is kept",
            hint="name another place, or replace it: --replace",
        )
        other = f"another `tpujob data` command writes to {target}"
        with explained(), alone(place.stage / "lock", other):
            old = None if replace else place.manifest()
            counts = found.files, found.bytes, found.order
            if old and (old.records, old.content, old.order) != counts:
                raise another  # before anything is read
            progress.planned(found.bytes)
            made = PackSummary(order=self._order)
            manifest = self._written(place, progress, made)
            if old not in (None, manifest):
                raise another
            place.finish(manifest)
        return made

    def _written(self, place: "_Place", progress: SyncProgress, made: PackSummary) -> Manifest:
        """Afterwards everything but the manifest is in its place."""
        files = _files_to_pack(self._folder, made)
        if self._seed is not None:
            files = _shuffled(files, self._seed)
        shards: list[Shard] = []
        with (place.stage / "index.part").open("wb") as index:
            runs = map(made.count, cut(files, self._size))
            for shard, lines in _Shards(place, progress).made(enumerate(runs)):
                shards.append(replace(shard, index_start=index.tell()))
                index.write(lines)
        if not shards:
            raise Conflict(f"the files of {self._name} went away while they were being packed")
        made.shard_bytes = sum(shard.bytes for shard in shards)
        labels = made.labels.names()
        if labels:
            (place.stage / "labels.part").write_bytes(made.labels.encode())
        return Manifest(
            format=FORMAT,
            version=VERSION,
            records=made.files,
            content=made.bytes,
            order=made.order,
            index=place.publish("index.part", "index-{}.jsonl.gz"),
            labels=labels,
            label_ids=place.publish("labels.part", "labels-{}.u4") if labels else None,
            shards=tuple(shards),
        )


class _Place:
    """The folder of the set, which holds nothing else."""

    def __init__(self, folder: str) -> None:
        self._name = folder
        self._folder = Path(os.path.realpath(folder))
        #: in which files are made before they get their names; a link is not followed when it is removed
        self.stage = self._folder / PARTS_FOLDER / "pack"

    def prepare(self) -> None:
        """Afterwards the stage exists. Raises BadRequest when nothing can be written there, or should be."""
        try:
            there = os.listdir(self._folder) if self._folder.exists() else []
            others = [name for name in there if not is_own(name) and name != PARTS_FOLDER]
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
        """None: there is no packed set. Raises BadRequest."""
        try:
            return decode((self._folder / NAME).read_bytes())
        except FileNotFoundError:
            return None

    def publish(self, unfinished: str, name: str) -> SetFile:
        """Afterwards this file of the stage has its name, with {} as in `described`, also after a loss of power."""
        path = self.stage / unfinished
        file = described(path, name)
        _settle(path)
        os.replace(path, self._folder / file.name)
        _settle(self._folder)
        return file

    def finish(self, manifest: Manifest) -> None:
        """Afterwards the set is visible, and files of earlier sets are gone."""
        (self.stage / "manifest.part").write_bytes(manifest.encode())
        self.publish("manifest.part", NAME)
        keep = {NAME, *(file.name for file in manifest.files())}
        for name in os.listdir(self._folder):
            if is_own(name) and name not in keep:
                (self._folder / name).unlink()
        remove_stage(self.stage)


def _settle(path: Path) -> None:
    """Afterwards the file, or the folder's list of names, outlives a loss of power."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# A shard is written beside its place, read back and compared, and only then given its name ----------------------------


class _Shards:
    def __init__(self, place: _Place, progress: SyncProgress) -> None:
        self._place, self._progress = place, progress
        self._stopped = False

    def made(self, tasks: Iterator[tuple[int, list[LocalFile]]]) -> Iterator[tuple[Shard, bytes]]:
        """Every shard in the order of the tasks, as if it were the first of the index, with its lines of the index as a
        gzip member. A few are made at once; after an error the others stop.

        Raises Conflict for a file that changes, TpujobError for a shard that does not hold what was written, OSError.
        """
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                while batch := list(islice(tasks, _THREADS)):
                    yield from pool.map(self._make, batch)
            except BaseException:
                self._stopped = True
                raise

    def _make(self, task: tuple[int, list[LocalFile]]) -> tuple[Shard, bytes]:
        number, files = task
        path = self._place.stage / f"{number:05d}.part"
        entries: list[IndexEntry] = []
        try:
            records.write(str(path), self._contents(files, entries))
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

    def _contents(self, files: list[LocalFile], entries: list[IndexEntry]) -> Iterator[bytes]:
        for file in files:
            if self._stopped:
                raise TpujobError("the pack was ended")
            data = _content(file)
            entries.append(IndexEntry(file.key, len(data), extend(0, data)))
            yield data
            self._progress.moved(len(data))


def _content(file: LocalFile) -> bytes:
    try:
        with opened(file) as content:
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


# Which files go into which shard --------------------------------------------------------------------------------------


def _files_to_pack(folder: bytes, left_out: Problems) -> Iterator[LocalFile]:
    for file in files_of(folder):
        if isinstance(file, LeftOut):
            left_out.note(file)
        elif file.size > LARGEST:
            reason = f"it has more than {LARGEST >> 20} MiB: copy it with `tpujob data sync`"
            left_out.note(LeftOut(file.key, reason))
        else:
            yield file


def cut(
    files: Iterable[LocalFile], size: int, most: int = _MOST_RECORDS
) -> Iterator[list[LocalFile]]:
    """Runs of files of at most `size` bytes together; a larger file is alone."""
    run: list[LocalFile] = []
    held = 0
    for file in files:
        if run and (held + file.size > size or len(run) == most):
            yield run
            run, held = [], 0
        run.append(file)
        held += file.size
    if run:
        yield run


def _shuffled(files: Iterable[LocalFile], seed: int) -> Iterator[LocalFile]:
    """In the order of a hash of seed and key, which every version of Python computes alike. Sorted in a temporary file
    of SQLite, as a list of millions would not fit into memory."""

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
