"""Copies a data set from the bucket to a folder of this host, on disk or in memory, before the program starts.

Later attempts, also after a killed one, fetch only files that are missing or have changed. Each file is verified by its
MD5, if the storage has one, before it gets its name.
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
from tpujob.agent.storage import RETRY_TIMEOUT, Storage, StorageError, StoredObject, md5_of, retry
from tpujob.protocol import StageOrder

TELL_EVERY = 10.0  #: seconds between two lines of the log about the progress
LEFT_OUT = 5  #: most names in a line of the log about objects that cannot be files


class _File(NamedTuple):
    """An object and its paths on this host."""

    object: StoredObject
    path: str  #: the final path
    partial: str  #: the path until the file is verified


class Staging:
    """A copy of one data set to this host."""

    threads = 16
    part = 64 * 1024 * 1024  #: bytes of a file that one request fetches
    spare = 256 * 1024 * 1024  #: bytes that must stay free
    patience = RETRY_TIMEOUT  #: seconds of retries for a request

    def __init__(self, order: StageOrder, storage: Storage, note: Note) -> None:
        self._source = order["source"].rstrip("/") + "/"
        self.folder = on_this_host(order["to"])
        parent, name = os.path.split(self.folder)
        self._parts = os.path.join(parent, ".%s.parts" % name)  #: the folder of partial files
        self._record = os.path.join(parent, ".%s.staged" % name)  #: the list of verified files
        self._storage, self._note = storage, note
        self._name = order["name"]
        self._cancelled = threading.Event()
        self._failed = False  #: a file failed, so the other downloads stop
        self._lock = threading.Lock()
        self._done = 0  #: bytes

    def cancel(self) -> None:
        """Make the threads of `run` end soon."""
        self._cancelled.set()

    def run(self) -> None:
        """Make the folder a copy of the source at one moment of the call. Safe to repeat. Raises Failure."""
        for is_last in (False, False, True):
            try:
                self._mirror()
                return
            except StorageError as error:
                if is_last or error.status != 404:  # 404: replaced after the list call
                    text = "%s cannot be copied to this host: %s" % (self._source, error)
                    raise Failure(text) from error
            except OSError as error:
                raise Failure("%s cannot be written: %s" % (self.folder, error)) from error

    def _mirror(self) -> None:
        files = self._list_files()
        verified: Dict[str, Tuple[str, int]] = {}  # generation and time of each verified file
        with contextlib.suppress(OSError), open(self._record, encoding="utf-8") as record:
            for line in record:
                with contextlib.suppress(ValueError, TypeError):  # the last line may be truncated
                    path, generation, time_ns = json.loads(line)
                    verified[path] = (generation, time_ns)
        complete = {path for path, file in files.items() if _is_complete(file, verified)}
        missing = [file for path, file in files.items() if path not in complete]
        self._remove_others(complete)
        self._check_room(sum(f.object.size for f in missing))
        if missing:
            self._fetch_all(missing)

    def _list_files(self) -> Dict[str, _File]:
        """Return the files by path, and log objects that cannot be files. Raises Failure if there are no files."""
        files: Dict[str, _File] = {}
        invalid: List[str] = []
        for listed in self._retry(lambda: list(self._storage.objects(self._source))):
            if not listed.is_path:
                if listed.size or not listed.name.endswith("/"):  # otherwise an empty folder
                    invalid.append(listed.name)
                continue
            path = os.path.join(self.folder, listed.name)
            partial = os.path.join(self._parts, hashlib.sha256(listed.name.encode()).hexdigest())
            files[path] = _File(listed, path, partial)
        # a file has the path of their folder
        below = [p for p in files if not files.keys().isdisjoint(_folders_above(p, self.folder))]
        invalid += [files.pop(path).object.name for path in below]
        if invalid:
            names = ", ".join(map(repr, invalid[:LEFT_OUT]))
            text = "data: %s: %d names that no file can have: %s"
            self._note(text % (self._name, len(invalid), names))
        if not files:
            raise Failure("there is nothing below %s" % self._source)
        return files

    def _check_room(self, size: int) -> None:
        """Create the folders, and raise Failure if the disk has no room for `size` bytes."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        shutil.rmtree(self._parts, ignore_errors=True)
        os.makedirs(self._parts, mode=0o700)
        free = max(0, shutil.disk_usage(self.folder).free - self.spare)
        if size > free:
            raise Failure(
                "%s needs %s more on this host, where %s has %s free; let the program stream it instead"
                % (self._source, amount(size), self.folder, amount(free))
            )

    def _remove_others(self, complete: Set[str]) -> None:
        """Delete all files except complete ones, and empty folders."""
        folders = {folder for path in complete for folder in _folders_above(path, self.folder)}
        for root, names, files in os.walk(self.folder, topdown=False):
            for name in files + names:
                path = os.path.join(root, name)
                if os.path.islink(path) or not os.path.isdir(path):
                    if path not in complete:
                        os.unlink(path)
                elif path not in folders:
                    os.rmdir(path)

    def _fetch_all(self, files: List[_File]) -> None:
        began, total = time.monotonic(), sum(f.object.size for f in files)
        lanes = max(1, self.threads // len(files))  # parallel requests for one file
        self._done = 0
        self._failed = False
        record = open(self._record, "a", encoding="utf-8")  # noqa: SIM115
        pool = ThreadPoolExecutor(self.threads)
        futures: List[Future[None]] = []
        try:
            futures.extend(pool.submit(self._fetch, file, lanes, record) for file in files)
            while True:
                done, pending = wait(futures, TELL_EVERY, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if not pending:
                    break
                speed = amount(int(self._done / (time.monotonic() - began)))
                progress = (self._name, amount(self._done), amount(total), speed)
                self._note("data: %s: %s of %s, %s/s" % progress)
        except BaseException:
            self._failed = True
            for future in futures:
                future.cancel()
            raise
        finally:
            pool.shutdown()
            record.close()
        seconds = time.monotonic() - began
        shutil.rmtree(self._parts, ignore_errors=True)
        summary = (self._name, amount(total), len(files), self.folder, seconds)
        self._note("data: %s: %s in %d files came to %s in %.1f s" % summary)

    def _fetch(self, file: _File, lanes: int, record: TextIO) -> None:
        """Fetch and verify a file, then give it its final path. Raises StorageError, OSError."""
        self._retry(lambda: self._fetch_verified(file, lanes))
        os.makedirs(os.path.dirname(file.path), exist_ok=True)
        os.replace(file.partial, file.path)
        line = json.dumps([file.path, file.object.generation, os.stat(file.path).st_mtime_ns])
        with self._lock:
            record.write(line + "\n")
            record.flush()

    def _fetch_verified(self, file: _File, lanes: int) -> None:
        size = file.object.size
        with open(file.partial, "wb") as empty:
            empty.truncate(size)
        starts = range(0, size, self.part)
        spans = [(start, min(start + self.part, size)) for start in starts]
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

            def write(piece: bytes) -> None:
                nonlocal position
                if self._failed or self._cancelled.is_set():
                    raise Failure("cancelled")  # no StorageError, so it is not retried
                position += os.pwrite(descriptor, piece, position)

            path = self._source + file.object.name
            self._storage.read(path, write, file.object.generation, span)
            if position != span[1]:
                raise StorageError("%s: the answer has another length" % file.object.name)

        descriptor = os.open(file.partial, os.O_WRONLY)
        try:
            self._retry(fetch)
        finally:
            os.close(descriptor)
        with self._lock:
            self._done += span[1] - span[0]

    def _retry(self, call: Callable[[], Any]) -> Any:
        return retry(call, self.patience, lambda s: self._cancelled.wait(s) or self._failed)


def _folders_above(path: str, top: str) -> Iterator[str]:
    """Yield the parent folders of a file, up to `top`."""
    while len(path) > len(top):
        path = os.path.dirname(path)
        yield path


def _is_complete(file: _File, verified: Dict[str, Tuple[str, int]]) -> bool:
    try:
        status = os.lstat(file.path)
    except OSError:
        return False
    is_verified = verified.get(file.path) == (file.object.generation, status.st_mtime_ns)
    return is_verified and status.st_size == file.object.size


def amount(size: int) -> str:
    """Return a number of bytes as text, such as `1.5 GiB`."""
    number, units = float(size), ["B", "KiB", "MiB", "GiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return "%.1f %s" % (number, units[0]) if units[0] != "B" else "%d B" % size
