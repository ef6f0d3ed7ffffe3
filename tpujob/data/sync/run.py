"""A whole sync: the plan runs in one thread and many copy. Memory does not grow with the number of files."""

from __future__ import annotations

import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Protocol

from tpujob.data.keys import PARTS_FOLDER, FoldersAndFiles, why_no_file, why_no_object
from tpujob.data.objects import LeftOut, LocalFile, ObjectFacts, Objects, Outcome
from tpujob.data.places import Folder, Prefix
from tpujob.data.sync.download import Downloader, NoPlace
from tpujob.data.sync.ledger import Ledger
from tpujob.data.sync.plan import Pair, pairs
from tpujob.data.sync.upload import Changed, Done, Uploader
from tpujob.data.sync.walk import files_of
from tpujob.errors import BadRequest, Conflict, IllegalInState, NotFound, TpujobError

#: files that are copied at once
THREADS = 16
_WAITING = 4_000  #: pairs that may wait for a thread
_BATCH = 16
_LARGE = 1 << 20  #: bytes from which a file is handed out alone
_PROBLEMS = 1_000  #: problems that are kept with their names


class Progress(Protocol):
    """Is told how a sync goes on, by any thread."""

    def planned(self, size: int) -> None: ...
    def moved(self, size: int) -> None: ...


@dataclass(slots=True)
class Preview:
    """What a sync would do."""

    objects: int = 0  #: to be copied
    bytes: int = 0
    reads: int = 0  #: requests for content; an empty object needs none
    same: int = 0
    pages: int = 0  #: of the list of what is in the bucket
    up: bool = True
    left_out: int = 0
    problems: list[LeftOut] | None = None

    @property
    def class_a(self) -> int:
        return self.pages + (self.objects if self.up else 0)

    @property
    def class_b(self) -> int:
        return self.reads


class Sync:
    """One source and one target, of which one is a folder and one a prefix of a bucket."""

    def __init__(
        self,
        source: Folder | Prefix,
        target: Folder | Prefix,
        objects: Objects,
        ledger: Ledger,
        progress: Progress,
    ) -> None:
        """Raises BadRequest for two places between which nothing is copied, NotFound for a missing source."""
        self._objects, self._ledger, self._progress = objects, ledger, progress
        self._outcome = Outcome()
        self._lock = threading.Lock()
        self._found = False  # anything at the source
        if isinstance(source, Folder) and isinstance(target, Prefix):
            self._up, folder, self._prefix = True, source, target
            _check_source(folder.path)
        elif isinstance(source, Prefix) and isinstance(target, Folder):
            self._up, self._prefix, folder = False, source, target
        else:
            raise BadRequest(
                "data is copied between a folder and gs://BUCKET/PREFIX, in either direction",
                hint="copy to a folder first, and from there to the bucket",
            )
        self._folder = os.path.realpath(os.fsencode(folder.path))

    def preview(self) -> Preview:
        """What `run` would do. Nothing is written; files whose size is right are read, unless they were before."""
        found = Preview(up=self._up, problems=self._outcome.problems)
        uploader = self._uploader()
        for pair in self._pairs(lambda: setattr(found, "pages", found.pages + 1)):
            if pair.may_be_same and pair.file and pair.facts:
                try:
                    if uploader.checksum(pair.file) == pair.facts.crc32c:
                        found.same += 1
                        continue
                except (OSError, Changed):
                    pass  # the sync itself will say what is wrong with it
            of = pair.file if self._up else pair.facts
            assert of
            found.objects += 1
            found.bytes += of.size
            found.reads += not self._up and of.size > 0
        found.left_out = self._outcome.left_out
        return found

    def run(self) -> Outcome:
        """Copy what differs. Raises what ends the whole sync; what concerns one file is in the outcome. Safe to repeat
        after any end: nothing is under its final name that is not whole and verified."""
        with ExitStack() as stack:
            stack.enter_context(self._ledger.alone(str(self._folder), str(self._prefix)))
            copy = self._uploader().copy if self._up else self._downloader(stack).copy
            _Crew(copy, self._settled, self._failed).work(self._planned())
            if not self._up and not self._outcome.left_out and not self._outcome.conflicts:
                shutil.rmtree(self._folder + b"/" + PARTS_FOLDER.encode(), ignore_errors=True)
        return self._outcome

    # the plan

    def _planned(self) -> Iterator[Pair]:
        for pair in self._pairs():
            of = pair.file if self._up else pair.facts
            assert of
            self._progress.planned(of.size)
            yield pair

    def _pairs(self, on_page: Callable[[], None] = lambda: None) -> Iterator[Pair]:
        """What is at the source and can be at the target, with what is there."""
        for pair in pairs(self._files(), self._listed(on_page), self._prefix.prefix):
            if (pair.file if self._up else pair.facts) is not None:
                yield pair
        if not self._up and not self._found:
            raise NotFound(
                f"there is nothing below gs://{self._prefix.bucket}/{self._prefix.prefix}"
            )

    def _files(self) -> Iterator[LocalFile]:
        if not self._up and not os.path.isdir(self._folder):
            return
        for file in files_of(self._folder):
            if isinstance(file, LeftOut):
                if self._up:
                    self._leave_out(file.name, file.reason)
            elif reason := self._up and why_no_object(self._prefix.prefix + file.key):
                self._leave_out(file.key, reason)
            else:
                yield file

    def _listed(self, on_page: Callable[[], None]) -> Iterator[ObjectFacts]:
        clashes = FoldersAndFiles()
        for page in self._objects.pages(self._prefix.bucket, self._prefix.prefix):
            on_page()
            for facts in page:
                self._found = True
                key = facts.name[len(self._prefix.prefix) :]
                reason = "" if self._up else why_no_file(key) or clashes.why_not(key)
                if reason:
                    self._leave_out(key or facts.name, reason)
                else:
                    yield facts

    # the copying

    def _uploader(self) -> Uploader:
        place = self._prefix
        return Uploader(
            self._objects,
            self._ledger,
            place.bucket,
            place.prefix,
            self._sent,
            self._progress.moved,
        )

    def _downloader(self, stack: ExitStack) -> Downloader:
        parts = Path(os.fsdecode(self._folder)) / PARTS_FOLDER
        try:
            parts.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((parts / "lock").open("w"))
        except OSError as error:
            raise BadRequest(
                f"cannot write to {os.fsdecode(self._folder)}: {error.strerror}"
            ) from error
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except OSError:
            text = f"another `tpujob data sync` writes to {os.fsdecode(self._folder)}"
            raise IllegalInState(text, hint="wait for it, or end it") from None
        return Downloader(
            self._objects,
            self._prefix.bucket,
            self._folder,
            self._uploader().checksum,
            self._ledger.keep_checksum,
            self._sent,
            self._progress.moved,
        )

    def _sent(self, size: int) -> None:
        with self._lock:
            self._outcome.sent_bytes += size
        self._progress.moved(size)

    def _settled(self, pair: Pair, done: Done) -> None:
        of = pair.file if self._up else pair.facts
        assert of
        with self._lock:
            if done == "same":
                self._outcome.same += 1
                self._outcome.same_bytes += of.size
            else:
                self._outcome.copied += 1
                self._outcome.copied_bytes += of.size
        if done == "same":
            self._progress.moved(of.size)

    def _failed(self, pair: Pair, error: Exception) -> bool:
        """Note what concerns one file; False: it concerns them all."""
        match error:
            case Conflict():
                text = "something else was written there meanwhile" if self._up else error.message
                self._note(pair.key, text, conflict=True)
            case Changed():
                self._leave_out(pair.key, "it was written to while it was being copied")
            case NoPlace():
                self._leave_out(pair.key, str(error))
            case FileNotFoundError() | PermissionError() | NotADirectoryError():
                self._leave_out(pair.key, f"the file: {error.strerror}")
            case _:
                return False
        return True

    def _leave_out(self, name: str, reason: str) -> None:
        self._note(name, reason, conflict=False)

    def _note(self, name: str, reason: str, *, conflict: bool) -> None:
        with self._lock:
            self._outcome.conflicts += conflict
            self._outcome.left_out += not conflict
            if len(self._outcome.problems) < _PROBLEMS:
                self._outcome.problems.append(LeftOut(name, reason))


class _Crew:
    """Threads that copy what one thread plans. The first error that concerns all files ends them."""

    def __init__(
        self,
        copy: Callable[[Pair], Done],
        settled: Callable[[Pair, Done], None],
        failed: Callable[[Pair, Exception], bool],
    ) -> None:
        self._copy, self._settled, self._failed = copy, settled, failed
        self._tasks: queue.Queue[list[Pair]] = queue.Queue(_WAITING // _BATCH)
        self._ended: Exception | None = None

    def work(self, planned: Iterable[Pair]) -> None:
        """Raises that error. After an exception no new file is begun."""
        threads = [threading.Thread(target=self._member, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            self._hand_out(planned)
        except Exception as error:
            self._ended = self._ended or error
        for _ in threads:
            self._put([])
        for thread in threads:
            thread.join()
        if self._ended:
            raise _explained(self._ended)

    def _hand_out(self, planned: Iterable[Pair]) -> None:
        batch: list[Pair] = []
        for pair in planned:
            batch.append(pair)
            large = max(of.size for of in (pair.file, pair.facts) if of) > _LARGE
            if large or len(batch) >= _BATCH:
                self._put(batch)
                batch = []
            if self._ended:
                return
        if batch:
            self._put(batch)

    def _put(self, batch: list[Pair]) -> None:
        self._tasks.put(batch)

    def _member(self) -> None:
        while batch := self._tasks.get():
            for pair in batch:
                if self._ended:
                    break  # the queue is emptied, or the planning thread would wait for ever
                self._one(pair)

    def _one(self, pair: Pair) -> None:
        try:
            self._settled(pair, self._copy(pair))
        except Exception as error:
            if not self._failed(pair, error):
                self._ended = self._ended or error


def _explained(error: Exception) -> Exception:
    if isinstance(error, OSError):
        made = TpujobError(
            f"cannot read or write a file: {error.strerror or error}",
            hint="what is whole stays; the same command continues",
        )
        made.__cause__ = error
        return made
    return error


def _check_source(path: str) -> None:
    found = Path(path)
    if not found.exists():
        raise NotFound(f"there is no folder {path}")
    if not found.is_dir():
        raise BadRequest(f"{path} is no folder", hint="name the folder that the file is in")
