"""Runs a sync: one thread finds the differences, others copy. `directions.py` has the directions."""

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tpujob.data.keys import PARTS_FOLDER, exclusive_lock
from tpujob.data.locations import Folder, Place, Prefix, Traffic, UrlList, overlap, route_of
from tpujob.data.manifest import NAME as MANIFEST
from tpujob.data.objects import (
    Changed,
    CopyOutcome,
    LocalFile,
    NotCopied,
    ObjectFacts,
    Objects,
    Problems,
    SourceReader,
)
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.directions import direction
from tpujob.data.sync.workers import AnyPair, copy_all, pairs
from tpujob.errors import BadRequest, Conflict, NotFound
from tpujob.protocol.left_out import LeftOut, is_of_one_file


class SyncProgress(Protocol):
    """A display of a sync's progress. Any thread may call it."""

    def planned(self, size: int) -> None: ...
    def moved(self, size: int) -> None: ...


@dataclass(slots=True)
class Preview(Problems):
    """The objects that a sync would copy, and their billed operations."""

    objects: int = 0  #: objects to copy
    bytes: int = 0
    same: int = 0
    class_a: int = 0
    class_b: int = 0
    traffic: Traffic = field(default_factory=Traffic)


class Sync:
    """A sync from one source to one target."""

    def __init__(
        self,
        source: Place,
        target: Place,
        objects: Objects,
        cache: ChecksumCache,
        progress: SyncProgress,
        reader: SourceReader | None = None,
        chosen: Sequence[tuple[str, LocalFile | ObjectFacts]] | None = None,
    ) -> None:
        """`reader` is that of a source outside Cloud Storage. `chosen`: the items to copy, with their keys at the
        target, in the order of the keys' UTF-8 bytes; None: all of the source. Raises BadRequest, NotFound, as `check`
        does."""
        check(source, target)
        self._source, self._target, self._objects = source, target, objects
        self._cache, self._progress = cache, progress
        self._outcome = CopyOutcome()
        self._lock = threading.Lock()
        every = direction(source, target, objects, cache, reader, self._moved)
        self._direction = every if chosen is None else every.only(chosen)

    def preview(self) -> Preview:
        """Return what `run` would copy. Writes nothing; reads files of the right size whose checksum is not cached."""
        preview = Preview(problems=self._outcome.problems, traffic=self._traffic())
        for pair in self._pairs():
            try:
                if self._direction.copier.is_same(pair):
                    preview.same += 1
                    continue
            except (OSError, Changed):
                pass  # `run` will report the problem
            preview.objects += 1
            preview.bytes += pair.source.size
            class_a, class_b = self._direction.operations
            preview.class_a += class_a
            preview.class_b += class_b * (pair.source.size > 0)  # an empty object needs no request
        # the requests of this preview
        preview.class_a += self._objects.operations.class_a
        preview.class_b += self._objects.operations.class_b
        preview.left_out = self._outcome.left_out
        return preview

    def run(self) -> CopyOutcome:
        """Copy all differences. Errors of single files are in the outcome; others are raised. Safe to repeat after any
        end: only complete and verified copies have their final names."""
        with ExitStack() as stack:
            parts = self._lock_parts_folder(stack)
            self._outcome.traffic = self._traffic()
            manifests: list[AnyPair] = []
            copy_all(self._set_aside(manifests), self._copy)
            self._copy_manifests(manifests)
            if parts and not self._outcome.left_out and not self._outcome.conflicts:
                shutil.rmtree(parts, ignore_errors=True)
                self._cache.forget_folder(str(parts))
        return self._outcome

    # Plan

    def _traffic(self) -> Traffic:
        route = route_of(self._source, self._target)
        if not (isinstance(self._source, Prefix) and isinstance(self._target, Prefix)):
            return Traffic(route)
        location = self._objects.location(self._source.bucket)
        same = self._source.bucket == self._target.bucket
        return Traffic(
            route, location, location if same else self._objects.location(self._target.bucket)
        )

    def _pairs(self) -> Iterator[AnyPair]:
        """Yield each source item that the target can have, with the target's item of the same key."""
        yield from pairs(self._source_items(), self._direction.target(lambda _: None))

    def _source_items(self) -> Iterator[tuple[str, object]]:
        has_items = False
        for key, item in self._direction.source(self._leave_out):
            has_items = True
            reason = self._direction.why_not(key)
            if reason:
                self._leave_out(LeftOut(key or str(self._source), reason))
            else:
                yield key, item
        if not (has_items or self._outcome.left_out or isinstance(self._source, Folder)):
            raise NotFound(f"there is nothing below {self._source}")

    def _lock_parts_folder(self, stack: ExitStack) -> Path | None:
        """Return the folder of unfinished downloads, locked for this process; None unless the target is a folder."""
        if not isinstance(self._target, Folder):
            return None
        parts = Path(os.path.realpath(self._target.path)) / PARTS_FOLDER
        try:
            parts.mkdir(parents=True, exist_ok=True)
            message = f"another copy of tpujob writes to {self._target}"
            stack.enter_context(exclusive_lock(parts / "lock", message))
        except OSError as error:
            raise BadRequest(f"cannot write to {self._target}: {error.strerror}") from error
        self._cache.keep_folder(str(parts))
        return parts

    # Copies

    def _set_aside(self, manifests: list[AnyPair]) -> Iterator[AnyPair]:
        """Yield all pairs except manifests of packed sets, and append these to `manifests`."""
        for pair in self._pairs():
            self._progress.planned(pair.source.size)
            if pair.key.rpartition("/")[2] == MANIFEST:
                manifests.append(pair)
            else:
                yield pair

    def _copy_manifests(self, manifests: list[AnyPair]) -> None:
        """Copy the manifests of packed sets, unless files were left out: a set with a manifest counts as complete."""
        if not self._outcome.left_out and not self._outcome.conflicts:
            copy_all(manifests, self._copy)
            return
        for pair in manifests:
            self._leave_out(
                LeftOut(pair.key, "other files were not copied, and it would name them")
            )

    def _moved(self, size: int) -> None:
        with self._lock:
            self._outcome.sent_bytes += size
        self._progress.moved(size)

    def _copy(self, pair: AnyPair) -> None:
        """Copy one pair, and record its result. Raises errors that concern all pairs."""
        try:
            done = self._direction.copier.copy(pair)
        except Conflict as error:
            self._leave_out(LeftOut(pair.key, error.message), conflict=True)
            return
        except NotCopied as error:
            self._leave_out(LeftOut(pair.key, str(error)))
            return
        except OSError as error:
            if not is_of_one_file(error):
                raise
            self._leave_out(LeftOut(pair.key, f"the file: {error.strerror}"))
            return
        size = pair.source.size
        with self._lock:
            if done == "same":
                self._outcome.same += 1
                self._outcome.same_bytes += size
            else:
                self._outcome.copied += 1
                self._outcome.copied_bytes += size
                self._outcome.unverified += done == "unverified"
        if done == "same":
            self._progress.moved(size)

    def _leave_out(self, problem: LeftOut, *, conflict: bool = False) -> None:
        with self._lock:
            self._outcome.note(problem, conflict=conflict)


def check(source: Place, target: Place) -> None:
    """Check two places without requests and writes. Raises BadRequest for kinds of places that cannot be copied,
    NotFound for a missing source on this machine."""
    if isinstance(source, Folder | UrlList):
        _check_local_source(source)
    if not isinstance(target, Folder | Prefix):
        raise BadRequest(
            f"nothing is written to {target}", hint="copy to a folder, or to gs://BUCKET/PREFIX"
        )
    if isinstance(source, Folder) and isinstance(target, Folder):
        raise BadRequest("both places are folders of this machine", hint="one must be elsewhere")
    if isinstance(source, Prefix) and isinstance(target, Prefix) and overlap(source, target):
        raise BadRequest(
            f"one of {source} and {target} contains the other", hint="name another prefix"
        )


def _check_local_source(source: Folder | UrlList) -> None:
    path = Path(source.path)
    if not path.exists():
        raise NotFound(f"there is no folder {source.path}")
    if isinstance(source, Folder) and not path.is_dir():
        raise BadRequest(
            f"{source.path} is not a folder",
            hint="name the folder that the file is in; a list of URLs begins with the line TsvHttpData-1.0",
        )
