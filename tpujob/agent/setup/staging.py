"""Brings data that a program reads to a folder of this host, on its disk or in memory, before the program starts.

A folder is filled once for each host: a later attempt fetches what has changed, and a set-up that was killed goes on.
Each file is verified by its MD5, in so far as the storage has one; only what was verified gets its name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Set, TextIO, Tuple

from tpujob.agent.base import Failure, Note
from tpujob.agent.folders import on_this_host
from tpujob.agent.storage import Storage, StorageError, StoredObject, insist, md5_of
from tpujob.protocol import StageOrder

THREADS = 16
PART = 64 * 1024 * 1024  #: bytes of a file that one request fetches
SPARE = 256 * 1024 * 1024  #: bytes that stay free beside the data
TELL_EVERY = 10.0  #: seconds between two lines about the progress
#: how many names that cannot be files a line of the log lists
LEFT_OUT = 5


class _File(NamedTuple):
    """An object that is fetched."""

    object: StoredObject
    path: str  #: its final name
    partial: str


class Staging:
    """One data set on its way to this host."""

    def __init__(self, order: StageOrder, storage: Storage, note: Note) -> None:
        self._source = order["source"].rstrip("/") + "/"
        self.folder = on_this_host(order["to"])
        above, own = os.path.split(self.folder)
        self._parts, self._record = (
            os.path.join(above, ".%s.%s" % (own, kind)) for kind in ("parts", "staged")
        )
        self._storage, self._note = storage, note
        self._name = order["name"]
        self._cancelled = threading.Event()
        self._failed = False  #: one file could not be fetched: the others need not be
        self._lock = threading.Lock()
        self._done = 0  #: bytes

    def cancel(self) -> None:
        """End soon what runs on other threads."""
        self._cancelled.set()

    def run(self) -> None:
        """Afterwards the folder holds what the source held at some moment during the call, and nothing else. May be
        repeated. Raises Failure."""
        for last in (False, False, True):
            try:
                self._mirror()
                return
            except StorageError as error:
                if last or error.status != 404:  # an object was replaced after it was listed
                    text = "%s cannot be copied to this host: %s" % (self._source, error)
                    raise Failure(text) from error
            except OSError as error:
                raise Failure("%s cannot be written: %s" % (self.folder, error)) from error

    def _mirror(self) -> None:
        wanted = self._wanted()
        known: Dict[str, Tuple[str, int]] = {}  #: generation and time of what was verified
        with contextlib.suppress(OSError), open(self._record, encoding="utf-8") as record:
            for line in record:
                with contextlib.suppress(ValueError, TypeError):  # the last line may be cut
                    path, generation, time_ns = json.loads(line)
                    known[path] = (generation, time_ns)
        there = {path for path, file in wanted.items() if _is_there(file, known)}
        missing = [file for path, file in wanted.items() if path not in there]
        self._remove_others(there)
        self._make_room(sum(f.object.size for f in missing))
        if missing:
            self._fetch_all(missing)

    def _wanted(self) -> Dict[str, _File]:
        """Return the files to fetch, by path. The log names the objects whose names no file can have."""
        found: Dict[str, _File] = {}
        odd: List[str] = []
        for one in self._again(lambda: list(self._storage.objects(self._source))):
            if not one.is_path:
                if one.size or not one.name.endswith("/"):  # else the mark of an empty folder
                    odd.append(one.name)
                continue
            path = os.path.join(self.folder, one.name)
            partial = os.path.join(self._parts, hashlib.sha256(one.name.encode()).hexdigest())
            found[path] = _File(one, path, partial)
        below = [p for p in found if not found.keys().isdisjoint(_folders_above(p, self.folder))]
        odd += [found.pop(path).object.name for path in below]  # a file is where their folder is
        if odd:
            names = ", ".join(map(repr, odd[:LEFT_OUT]))
            self._note(
                "data: %s: %d names that no file can have: %s" % (self._name, len(odd), names)
            )
        if not found:
            raise Failure("there is nothing below %s" % self._source)
        return found

    def _make_room(self, size: int) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        shutil.rmtree(self._parts, ignore_errors=True)
        os.makedirs(self._parts, mode=0o700)
        free = max(0, shutil.disk_usage(self.folder).free - SPARE)
        if size > free:
            raise Failure(
                "%s needs %s more on this host, where %s has %s free; let the program stream it instead"
                % (self._source, amount(size), self.folder, amount(free))
            )

    def _remove_others(self, kept: Set[str]) -> None:
        """Delete what the source has no more, and what is in the way of a new file or folder or takes its room."""
        folders = {above for path in kept for above in _folders_above(path, self.folder)}
        for root, names, files in os.walk(self.folder, topdown=False):
            for name in files + names:
                path = os.path.join(root, name)
                if os.path.islink(path) or not os.path.isdir(path):
                    if path not in kept:
                        os.unlink(path)
                elif path not in folders:
                    os.rmdir(path)

    def _fetch_all(self, files: List[_File]) -> None:
        began, total = time.monotonic(), sum(f.object.size for f in files)
        lanes = max(1, THREADS // len(files))  #: of one file
        self._done, self._failed = 0, False
        record = open(self._record, "a", encoding="utf-8")  # noqa: SIM115
        pool = ThreadPoolExecutor(THREADS)
        fetched: List[Future[None]] = []
        try:
            fetched.extend(pool.submit(self._fetch, file, lanes, record) for file in files)
            while True:
                done, left = wait(fetched, TELL_EVERY, FIRST_EXCEPTION)
                for one in done:
                    one.result()
                if not left:
                    break
                speed = amount(int(self._done / (time.monotonic() - began)))
                words = (self._name, amount(self._done), amount(total), speed)
                self._note("data: %s: %s of %s, %s/s" % words)
        except BaseException:
            self._failed = True
            for one in fetched:
                one.cancel()
            raise
        finally:
            pool.shutdown()
            record.close()
        took = time.monotonic() - began
        shutil.rmtree(self._parts, ignore_errors=True)
        words = (self._name, amount(total), len(files), self.folder, took)
        self._note("data: %s: %s in %d files came to %s in %.1f s" % words)

    def _fetch(self, file: _File, lanes: int, record: TextIO) -> None:
        """Afterwards it has its name. Raises StorageError, OSError."""
        self._again(lambda: self._fetch_whole(file, lanes))
        os.makedirs(os.path.dirname(file.path), exist_ok=True)
        os.replace(file.partial, file.path)
        line = json.dumps([file.path, file.object.generation, os.stat(file.path).st_mtime_ns])
        with self._lock:
            record.write(line + "\n")
            record.flush()

    def _fetch_whole(self, file: _File, lanes: int) -> None:
        with open(file.partial, "wb") as empty:
            empty.truncate(file.object.size)
        spans = [(at, min(at + PART, file.object.size)) for at in range(0, file.object.size, PART)]
        if lanes > 1 and len(spans) > 1:
            with ThreadPoolExecutor(lanes) as pool:
                list(pool.map(functools.partial(self._fetch_part, file), spans))
        else:
            for span in spans:
                self._fetch_part(file, span)
        if file.object.md5 and md5_of(file.partial) != file.object.md5:
            raise StorageError("%s came with other bytes than are stored" % file.object.name)

    def _fetch_part(self, file: _File, span: Tuple[int, int]) -> None:
        def fetch() -> None:
            position = span[0]

            def take(piece: bytes) -> None:
                nonlocal position
                if self._failed or self._cancelled.is_set():
                    raise Failure("cancelled")  # which is not tried again
                position += os.pwrite(descriptor, piece, position)

            path = self._source + file.object.name
            self._storage.read(path, take, file.object.generation, span)
            if position != span[1]:
                raise StorageError("%s: the answer has another length" % file.object.name)

        descriptor = os.open(file.partial, os.O_WRONLY)
        try:
            self._again(fetch)
        finally:
            os.close(descriptor)
        with self._lock:
            self._done += span[1] - span[0]

    def _again(self, do: Callable[[], Any]) -> Any:
        return insist(do, wait=lambda seconds: self._cancelled.wait(seconds) or self._failed)


def _folders_above(path: str, top: str) -> Iterator[str]:
    """Yield the folders that a file lies in, up to `top`."""
    while len(path) > len(top):
        path = os.path.dirname(path)
        yield path


def _is_there(file: _File, known: Dict[str, Tuple[str, int]]) -> bool:
    try:
        about = os.lstat(file.path)
    except OSError:
        return False
    same = known.get(file.path) == (file.object.generation, about.st_mtime_ns)
    return same and about.st_size == file.object.size


def amount(size: int) -> str:
    """Bytes for people."""
    number, units = float(size), ["B", "KiB", "MiB", "GiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return "%.1f %s" % (number, units[0]) if units[0] != "B" else "%d B" % size
