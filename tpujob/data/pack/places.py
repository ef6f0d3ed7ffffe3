"""Where a packed set is written to and read from: a folder, or a prefix of a bucket. Each file of it gets its name only
when it is whole, and the caller has verified it before.
"""

import hashlib
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tpujob.data.checksum import extend
from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.objects import Objects
from tpujob.data.pack.manifest import NAME, SetFile, is_own
from tpujob.data.places import Prefix
from tpujob.data.sync.download import Downloader
from tpujob.data.sync.ledger import Ledger
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.upload import Uploader
from tpujob.data.sync.walk import local_file
from tpujob.errors import BadRequest, Conflict, NotFound

_READ = 1 << 20
#: bytes of a manifest, at most; one of a million shards has fewer
_LARGEST_MANIFEST = 512 << 20


class SetTarget(Protocol):
    """Threads share it, except for the manifest."""

    name: str
    stage: Path  #: a folder on a disk, in which files are made before they get their names

    def prepare(self) -> None:
        """Afterwards the stage exists. Raises BadRequest when nothing can be written there, or should be."""
        ...

    def manifest(self) -> bytes | None:
        """None: there is no packed set."""
        ...

    def has(self, file: SetFile) -> bool:
        """Whether this file is there, with these bytes."""
        ...

    def publish(self, path: Path, file: SetFile) -> None:
        """Afterwards the file has its name, and `path` is gone. Repeatable. Raises Conflict when somebody else writes
        the same name, OSError, and what `Objects` raises."""
        ...

    def remove_others(self, keep: set[str]) -> None:
        """Remove files of packed sets that this one does not name, where that is ours to do."""
        ...


class SetSource(Protocol):
    def manifest(self) -> bytes:
        """Raises NotFound."""
        ...

    @contextmanager
    def fetched(self, file: SetFile) -> Generator[Path]:
        """The file on a disk, with its size and checksum. Raises NotFound, Conflict when its bytes are others."""
        ...


class FolderTarget:
    """Holds a packed set and nothing else."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        self._folder = Path(os.path.realpath(folder))
        self.stage = self._folder / PARTS_FOLDER / "pack"

    def prepare(self) -> None:
        try:
            there = os.listdir(self._folder) if self._folder.exists() else []
            others = [name for name in there if not is_own(name) and name != PARTS_FOLDER]
            if not others:
                self.stage.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"cannot write to {self.name}: {error.strerror}") from error
        if others:
            raise BadRequest(
                f"{self.name} holds other files, such as {min(others)}",
                hint="name a new or empty folder, or one that `tpujob data pack` made",
            )

    def manifest(self) -> bytes | None:
        try:
            return (self._folder / NAME).read_bytes()
        except FileNotFoundError:
            return None

    def has(self, file: SetFile) -> bool:
        try:
            return described(self._folder / file.name, file.name) == file
        except OSError:
            return False

    def publish(self, path: Path, file: SetFile) -> None:
        _settle(path)
        os.replace(path, self._folder / file.name)
        _settle(self._folder)

    def remove_others(self, keep: set[str]) -> None:
        for name in os.listdir(self._folder):
            if is_own(name) and name not in keep:
                (self._folder / name).unlink()
        remove_stage(self.stage)


class BucketTarget:
    """`stage` holds a few shards at a time: each goes away when it was uploaded."""

    def __init__(self, place: Prefix, objects: Objects, ledger: Ledger, stage: Path) -> None:
        self.name = f"gs://{place.bucket}/{place.prefix}"
        self.stage = stage
        self._objects, self._place = objects, place
        self._uploader = Uploader(objects, ledger, place)

    def prepare(self) -> None:
        self.stage.mkdir(parents=True, exist_ok=True)

    def manifest(self) -> bytes | None:
        return _object(self._objects, self._place, NAME)

    def has(self, file: SetFile) -> bool:
        found = self._objects.look(self._place.bucket, self._place.prefix + file.name)
        return found is not None and (found.size, found.crc32c) == (file.bytes, file.crc32c)

    def publish(self, path: Path, file: SetFile) -> None:
        """The object's checksum is compared with that of the verified file, not only with what was sent."""
        bucket, name = self._place.bucket, self._place.prefix + file.name
        here = local_file(file.name, os.fsencode(path), os.lstat(path))
        self._uploader.copy(Pair(file.name, here, self._objects.look(bucket, name)))
        if not self.has(file):
            raise Conflict(f"gs://{bucket}/{name} has other bytes than were verified")
        path.unlink()

    def remove_others(self, keep: set[str]) -> None:
        """Objects of an earlier set stay, as others may be reading them; what waited here goes."""
        del keep
        shutil.rmtree(self.stage, ignore_errors=True)


class FolderSource:
    def __init__(self, folder: str) -> None:
        """Raises NotFound."""
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise NotFound(f"there is no folder {folder}")

    def manifest(self) -> bytes:
        try:
            if (self._folder / NAME).stat().st_size > _LARGEST_MANIFEST:
                raise _too_large()
            return (self._folder / NAME).read_bytes()
        except FileNotFoundError:
            raise _no_set(str(self._folder)) from None

    @contextmanager
    def fetched(self, file: SetFile) -> Generator[Path]:
        path = self._folder / file.name
        try:
            _compare(path, file)
        except FileNotFoundError:
            raise NotFound(f"{path} is missing, which the manifest names") from None
        yield path


class BucketSource:
    """`stage` holds what is being read, and goes on with what an earlier process had of it."""

    def __init__(self, place: Prefix, objects: Objects, ledger: Ledger, stage: Path) -> None:
        self._objects, self._place = objects, place
        self._stage = Path(os.path.realpath(stage))
        (self._stage / PARTS_FOLDER).mkdir(parents=True, exist_ok=True)
        self._downloader = Downloader(objects, place, os.fsencode(self._stage), ledger)

    def manifest(self) -> bytes:
        found = _object(self._objects, self._place, NAME)
        if found is None:
            raise _no_set(f"gs://{self._place.bucket}/{self._place.prefix}")
        return found

    @contextmanager
    def fetched(self, file: SetFile) -> Generator[Path]:
        name = self._place.prefix + file.name
        facts = self._objects.look(self._place.bucket, name)
        if facts is None:
            text = f"gs://{self._place.bucket}/{name} is missing, which the manifest names"
            raise NotFound(text)
        path = self._stage / file.name
        here = None
        if path.exists():
            here = local_file(file.name, os.fsencode(path), os.lstat(path))
        self._downloader.copy(Pair(file.name, facts, here))
        _compare(path, file)
        yield path
        path.unlink()


def described(path: Path, name: str = "") -> SetFile:
    """The file as it is, under that name, in which {} becomes the first 16 digits of its SHA-256."""
    size = crc32c = 0
    sha256 = hashlib.sha256()
    with open(path, "rb", buffering=0) as content:
        while data := content.read(_READ):
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


def _settle(path: Path) -> None:
    """Afterwards the file, or the folder's list of names, outlives a loss of power."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _compare(path: Path, file: SetFile) -> None:
    size = path.stat().st_size
    if size != file.bytes:
        raise Conflict(f"{file.name} has {size:,} bytes instead of {file.bytes:,}")
    if described(path, file.name) != file:
        raise Conflict(f"{file.name} does not have its checksum")


def _object(objects: Objects, place: Prefix, name: str) -> bytes | None:
    facts = objects.look(place.bucket, place.prefix + name)
    if facts is None:
        return None
    if facts.size > _LARGEST_MANIFEST:
        raise _too_large()
    data = bytearray()
    objects.get(place.bucket, facts, 0, data.extend)
    if facts.crc32c is not None and extend(0, memoryview(data)) != facts.crc32c:
        raise Conflict(f"the bytes of {facts.name} do not have its checksum", hint="try again")
    return bytes(data)


def _no_set(where: str) -> NotFound:
    return NotFound(
        f"there is no packed set at {where}: {NAME} is missing",
        hint="it is written last; a pack that was ended is finished by the same command",
    )


def _too_large() -> BadRequest:
    return BadRequest(f"{NAME} is larger than {_LARGEST_MANIFEST >> 20} MiB: not one of ours")
