"""Folders of the program that outlive the host: they are kept in the bucket, and are there again in the next attempt.

For programs that write checkpoints and results to plain files. What is new goes to the bucket at each checkpoint that
the program tells, every few minutes, and at its end. A checkpoint counts as committed once the bucket has it. Files go
up in the order in which they were written, so what a killed host leaves in the bucket is a state that its disk had.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from tpujob.agent.base import Note
from tpujob.agent.storage import Storage, StorageError, StoredObject, insist, md5_of
from tpujob.agent.wake import Wake

THREADS = 8  #: that fetch what an earlier attempt kept
EVERY = 300.0  #: seconds between two looks for new files, while the program tells no checkpoint
SETTLED = 2.0  #: seconds for which a file has not changed, unless a checkpoint was told or the program has ended
PATIENCE = 600.0  #: seconds that all of it is tried at the end
RETRY = 5.0  #: seconds between two tries for a checkpoint, and at the end


class _Version(NamedTuple):
    """By which a file is known to have changed."""

    size: int
    mtime_ns: int
    link: Optional[str]  #: where a symbolic link leads


class Outputs:
    """What one host keeps of its program's folders."""

    def __init__(
        self, storage: Storage, work: str, folders: List[str], where: str, note: Note
    ) -> None:
        """`folders` lie below `work`; `where` in the bucket is this host's alone."""
        self._storage, self._note = storage, note
        self._work, self._folders, self._where = work, folders, where.rstrip("/") + "/"
        self._kept: Dict[str, _Version] = {}  #: what the bucket has, by path below `work`
        self._lock = threading.Lock()
        self._asked, self._over = threading.Event(), threading.Event()
        self._told: Optional[int] = None  #: the newest checkpoint that the program told
        self.checkpoint: Optional[int] = None  #: the newest that the bucket has
        self._wake: Optional[Wake] = None
        self._complained = ""

    # Before the program

    def restore(self) -> None:
        """Afterwards the folders hold what an earlier attempt kept of this host. Raises StorageError, OSError."""
        for folder in self._folders:
            os.makedirs(os.path.join(self._work, folder), exist_ok=True)
        listed = insist(lambda: list(self._storage.objects(self._where)))
        ours = tuple(folder + "/" for folder in self._folders)
        found = [one for one in listed if one.is_path and one.name.startswith(ours)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(insist, [partial(self._fetch, one) for one in found]))
        if found:
            size = sum(one.size for one in found)
            self._note(
                "outputs: %d files, %d bytes of an earlier attempt are back" % (len(found), size)
            )

    def _fetch(self, one: StoredObject) -> None:
        path = os.path.join(self._work, one.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = path + ".tpujob-part"
        if one.link:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            os.symlink(one.link, temporary)
        else:
            with open(temporary, "wb") as file:
                self._storage.read(self._where + one.name, file.write, one.generation)
            one.check(temporary)
        os.replace(temporary, path)
        self._kept[one.name] = _version(path)

    # While it runs

    def follow(self, wake: Wake) -> None:
        """Keep what is new from now on, until `finish`. `wake` is told when a checkpoint is safe."""
        self._wake = wake
        threading.Thread(target=self._follow, name="outputs", daemon=True).start()

    def told(self, checkpoint: Optional[int]) -> Optional[int]:
        """The program's newest checkpoint; returns the newest that the bucket has."""
        if checkpoint is not None and checkpoint != self._told:
            self._told = checkpoint
            self._asked.set()
        return self.checkpoint

    def _follow(self) -> None:
        left = False  #: of what was asked for
        while not self._over.is_set():
            asked = self._asked.wait(RETRY if left else EVERY) or left
            self._asked.clear()
            if not self._over.is_set():
                left = bool(self._keep(0 if asked else SETTLED)) and asked

    # At its end

    def finish(self, patience: float) -> str:
        """Keep all that is there, or try for so many seconds. What could not be kept; empty: the bucket has it all."""
        until = time.monotonic() + patience
        self._over.set()
        self._asked.set()
        while True:
            failed = self._keep(0)
            if not failed or time.monotonic() + RETRY > until:
                return failed
            time.sleep(RETRY)

    def _keep(self, settled: float) -> str:
        """Bring the bucket up to date; returns what could not be done."""
        with self._lock:
            checkpoint = self._told  # told before the files are looked at
            try:
                whole = self._bring_up(settled)
            except (OSError, StorageError) as error:
                failed = "outputs cannot be kept in the bucket: %s" % error
                if failed != self._complained:
                    self._note(failed)
                self._complained = failed
                return failed
            self._complained = ""
            if not whole:
                return "outputs changed while they were sent to the bucket"
            if checkpoint != self.checkpoint:
                self.checkpoint = checkpoint
                if self._wake is not None:
                    self._wake.up()
            return ""

    def _bring_up(self, settled: float) -> bool:
        """Whether nothing was left for later."""
        there = dict(self._files())
        old_enough, whole = time.time() - settled, True
        new = [
            (version.mtime_ns, name)
            for name, version in there.items()
            if version != self._kept.get(name)
        ]
        for mtime_ns, name in sorted(new):
            if settled and mtime_ns / 1e9 > old_enough:
                whole = False
            else:
                whole = self._put(name, there[name]) and whole
        for name in [*self._kept] if whole else []:
            if name not in there:
                self._storage.delete(self._where + name)
                del self._kept[name]
        return whole

    def _files(self) -> Iterator[Tuple[str, _Version]]:
        """Every file and link of the folders. One that vanishes meanwhile is left out."""
        for folder in self._folders:
            for root, folders, files in os.walk(os.path.join(self._work, folder)):
                links = [name for name in folders if os.path.islink(os.path.join(root, name))]
                for name in files + links:
                    path = os.path.join(root, name)
                    with contextlib.suppress(OSError):
                        if os.path.isfile(path) or os.path.islink(path):
                            yield os.path.relpath(path, self._work), _version(path)

    def _put(self, name: str, version: _Version) -> bool:
        """False: it changed or vanished meanwhile, and its turn comes again."""
        path = os.path.join(self._work, name)
        if _changed(path, version):  # it may speak of files that are written since
            return False
        try:
            if version.link is not None:
                self._storage.put_link(self._where + name, version.link)
            else:
                self._storage.put_file(self._where + name, path, md5_of(path))
        except FileNotFoundError:
            return False
        except StorageError as error:
            if _changed(path, version) and error.status in (0, 400):  # other bytes than were hashed
                return False
            raise
        if _changed(path, version):
            return False
        self._kept[name] = version
        return True


def _version(path: str) -> _Version:
    about = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(about.st_mode) else None
    return _Version(about.st_size, about.st_mtime_ns, link)


def _changed(path: str, version: _Version) -> bool:
    try:
        return _version(path) != version
    except OSError:
        return True
