"""A whole pack: files are planned in one thread and shards made by a few. Memory does not grow with the number of
files.

What becomes visible comes in this order: shards, the labels, the index, and last the manifest, which names them all.
"""

import hashlib
import os
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpujob.data.keys import explained
from tpujob.data.locations import Folder
from tpujob.data.objects import LeftOut, LocalFile, Problems
from tpujob.data.pack import manifest as manifests
from tpujob.data.pack.build import Built, ShardBuilder
from tpujob.data.pack.folder import FolderTarget, described
from tpujob.data.pack.manifest import Manifest, SetFile, Shard, label_of, lines, with_labels
from tpujob.data.pack.workers import Workers, alone_in
from tpujob.data.sync.endpoints import files_of
from tpujob.data.sync.run import SyncProgress
from tpujob.errors import BadRequest, Conflict, NotFound


@dataclass(slots=True)
class SourceSurvey(Problems):
    """What there is to pack."""

    files: int = 0
    bytes: int = 0
    labels: tuple[str, ...] = ()
    shards: int = 0  #: of a shuffled set about so many, as it is cut elsewhere


@dataclass(slots=True)
class PackOutcome(Problems):
    """What a pack made, or found made."""

    manifest: Manifest = field(kw_only=True)


class Pack:
    """One folder becomes one packed set."""

    def __init__(self, source: Folder, *, shard_bytes: int, seed: int | None = None) -> None:
        """`seed`: of the order of the records; None: that of their keys. Raises NotFound, BadRequest."""
        path = Path(source.path)
        if not path.exists():
            raise NotFound(f"there is no folder {source.path}")
        if not path.is_dir():
            raise BadRequest(f"{source.path} is not a folder", hint="name the folder of the files")
        self._folder = os.path.realpath(os.fsencode(source.path))
        self._name = source.path
        self._size, self._seed = shard_bytes, seed
        self._found = SourceSurvey()
        self._labels: Set[str] = set()  #: of the files so far, as `with_labels` has them

    def survey(self) -> SourceSurvey:
        """List the folder; no file is read. Raises BadRequest when there is nothing to pack."""
        self._found = found = SourceSurvey()
        for run in self._runs(self._files()):
            found.shards += 1
            found.files += len(run)
            found.bytes += sum(file.size for file in run)
        found.labels = tuple(sorted(self._labels - {""}))
        if not found.files:
            raise BadRequest(f"there is no file in {self._name} that can be packed")
        return found

    def run(
        self, target: FolderTarget, progress: SyncProgress, *, replace: bool = False
    ) -> PackOutcome:
        """Afterwards the target has the packed set, verified. Safe to repeat after any end: without a manifest there is
        no set, and shards that are there are not made again. `replace`: another set at the target gives way.

        Raises BadRequest, Conflict for a file that changes meanwhile, TpujobError, and what the target raises.
        """
        self._refuse_below(target)
        found = self.survey()
        target.prepare()
        with explained(), alone_in(target.stage, target.name):
            old = target.manifest()
            if old is not None and not replace:
                _refuse_another(old, found, self._order, target)
            new = self._built(target, progress)
            data = manifests.encode(new)
            if old is not None and old != data and not replace:
                raise _another(target)
            path = target.stage / "manifest.part"
            path.write_bytes(data)
            target.publish(path, described(path, manifests.NAME))
            target.remove_others({manifests.NAME, *(file.name for file in new.files())})
        return PackOutcome(self._found.left_out, problems=self._found.problems, manifest=new)

    # the plan

    @property
    def _order(self) -> str:
        return "key" if self._seed is None else f"shuffled by {self._seed}"

    def _files(self) -> Iterator[LocalFile]:
        for file in files_of(self._folder):
            if isinstance(file, LeftOut):
                self._found.note(file)
            elif file.size > LARGEST:
                reason = f"it has more than {LARGEST >> 20} MiB: copy it with `tpujob data sync`"
                self._found.note(LeftOut(file.key, reason))
            else:
                yield file

    def _runs(self, files: Iterable[LocalFile]) -> Iterator[list[LocalFile]]:
        self._labels = set()
        for run in cut(files, self._size):
            self._labels = with_labels(self._labels, (label_of(file.key) for file in run))
            yield run

    def _tasks(
        self, target: FolderTarget, progress: SyncProgress
    ) -> Iterator[tuple[int, list[LocalFile]]]:
        self._found = SourceSurvey()  # what this walk leaves out is what the set lacks
        files = self._files()
        if self._seed is not None:
            files = shuffled(files, self._seed, target.stage)
        for number, run in enumerate(self._runs(files)):
            progress.planned(sum(file.size for file in run))
            yield number, run

    # the set

    def _built(self, target: FolderTarget, progress: SyncProgress) -> Manifest:
        workers = Workers()
        builder = ShardBuilder(target, progress, workers)
        assembly = _Assembly(target)
        for built in workers.each(builder.build, self._tasks(target, progress)):
            assembly.add(built)
        if assembly.empty:
            raise Conflict(f"the files of {self._name} went away while they were being packed")
        return assembly.manifest(self._order, tuple(sorted(self._labels - {""})))

    def _refuse_below(self, target: FolderTarget) -> None:
        stage = os.path.realpath(os.fsencode(target.stage))
        if stage.startswith(self._folder.rstrip(b"/") + b"/"):
            raise BadRequest(
                f"{target.stage} is in {self._name}: the set would be packed into itself",
                hint="name a folder beside it",
            )


class _Assembly:
    """Puts the lines of the shards together to one index, in the order of the shards."""

    def __init__(self, target: FolderTarget) -> None:
        self._target = target
        self._path = target.stage / "index.part"
        self._path.write_bytes(b"")
        self._shards: list[Shard] = []
        self._end = 0

    def add(self, built: Built) -> None:
        with open(self._path, "ab") as index:
            index.write(built.member.read_bytes())
        self._shards.append(replace(built.shard, index_start=self._end))
        self._end += built.shard.index_bytes

    @property
    def empty(self) -> bool:
        return not self._shards

    def manifest(self, order: str, labels: tuple[str, ...]) -> Manifest:
        """Afterwards the index and the labels have their names."""
        index = described(self._path, "index-{}.jsonl.gz")
        ids = self._label_ids(labels) if labels else None
        self._target.publish(self._path, index)
        counts = sum(s.records for s in self._shards), sum(s.content for s in self._shards)
        return Manifest(*counts, order, index, labels, ids, tuple(self._shards))

    def _label_ids(self, labels: tuple[str, ...]) -> SetFile:
        numbers = {label: number for number, label in enumerate(labels)}
        path = self._target.stage / "labels.part"
        with open(path, "wb") as file:
            for shard in self._shards:
                ids = array("I", (numbers[label_of(e.key)] for e in lines(self._path, shard)))
                if sys.byteorder == "big":
                    ids.byteswap()
                ids.tofile(file)
        stored = described(path, "labels-{}.u4")
        self._target.publish(path, stored)
        return stored


def _refuse_another(old: bytes, found: SourceSurvey, order: str, target: FolderTarget) -> None:
    """Raise before the source is read if the set at `target` has other counts or another order."""
    there = manifests.decode(old)
    if (there.records, there.content, there.order) != (found.files, found.bytes, order):
        raise _another(target)


def _another(target: FolderTarget) -> BadRequest:
    return BadRequest(
        f"there is another packed set at {target.name}, which is kept",
        hint="name another place, or replace it: --replace",
    )


# Which files go into which shard --------------------------------------------------------------------------------------


#: files in a shard, at most: the list of one shard is in memory
MOST_RECORDS = 32_768
#: bytes of a file that is packed, at most: a record is in memory as a whole
LARGEST = 256 << 20


def cut(
    files: Iterable[LocalFile], size: int, most: int = MOST_RECORDS
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


def shuffled(files: Iterable[LocalFile], seed: int, folder: Path) -> Iterator[LocalFile]:
    """In the order of a hash of seed and key, which every version of Python computes alike. Sorted in a file below
    `folder`, as a list of millions would not fit into memory."""
    path = folder / "order.db"
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA cache_size=-32000")  # KiB; by default most inserts would read a page
        db.execute(
            "CREATE TABLE files (place BLOB PRIMARY KEY, key TEXT, path BLOB, size INTEGER, mtime_ns INTEGER,"
            " ctime_ns INTEGER, inode INTEGER) WITHOUT ROWID"
        )
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((_place(seed, file.key), file.key, file.path, *file.identity) for file in files),
        )
        db.execute("COMMIT")
        for _, key, where, *identity in db.execute("SELECT * FROM files ORDER BY place"):
            yield LocalFile(key, where, *identity)
    finally:
        db.close()
        path.unlink(missing_ok=True)


def _place(seed: int, key: str) -> bytes:
    return hashlib.blake2b(key.encode(), key=str(seed).encode(), digest_size=16).digest()
