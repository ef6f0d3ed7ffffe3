"""A whole sync: one thread plans what differs, others copy it. Each direction is in `directions.py`."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tpujob.data.keys import PARTS_FOLDER, alone
from tpujob.data.locations import Folder, Place, Prefix, Traffic, UrlList, overlap, route_of
from tpujob.data.manifest import NAME as MANIFEST
from tpujob.data.objects import (
    Changed,
    CopyOutcome,
    LeftOut,
    NotCopied,
    Objects,
    Problems,
    SourceReader,
)
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.directions import direction
from tpujob.data.sync.workers import AnyPair, copy_all, pairs
from tpujob.errors import BadRequest, Conflict, NotFound


class SyncProgress(Protocol):
    """Shows how far a sync has come; called by any thread."""

    def planned(self, size: int) -> None: ...
    def moved(self, size: int) -> None: ...


@dataclass(slots=True)
class Preview(Problems):
    """What a sync would do."""

    objects: int = 0  #: to be copied
    bytes: int = 0
    same: int = 0
    class_a: int = 0
    class_b: int = 0
    traffic: Traffic = field(default_factory=Traffic)


class Sync:
    """One source and one target."""

    def __init__(
        self,
        source: Place,
        target: Place,
        objects: Objects,
        cache: ChecksumCache,
        progress: SyncProgress,
        reader: SourceReader | None = None,
    ) -> None:
        """`reader`: of a source outside Cloud Storage. Raises BadRequest for two places between which nothing is
        copied, NotFound for a missing source."""
        check(source, target)
        self._source, self._target, self._objects = source, target, objects
        self._cache, self._progress = cache, progress
        self._outcome = CopyOutcome()
        self._lock = threading.Lock()
        self._direction = direction(source, target, objects, cache, reader, self._moved)

    def preview(self) -> Preview:
        """What `run` would do. Nothing is written; files whose size is right are read, unless they were before."""
        found = Preview(problems=self._outcome.problems, traffic=self._traffic())
        for pair in self._pairs():
            try:
                if self._direction.copier.same(pair):
                    found.same += 1
                    continue
            except (OSError, Changed):
                pass  # the sync itself will say what is wrong with it
            found.objects += 1
            found.bytes += pair.source.size
            class_a, class_b = self._direction.operations
            found.class_a += class_a
            found.class_b += class_b * (pair.source.size > 0)  # nothing is asked for an empty one
        # the lists, and the looks at both buckets
        found.class_a += self._objects.operations.class_a
        found.class_b += self._objects.operations.class_b
        found.left_out = self._outcome.left_out
        return found

    def run(self) -> CopyOutcome:
        """Copy what differs. Raises what ends the whole sync; what concerns one file is in the outcome. Safe to repeat
        after any end: nothing is under its final name that is not whole and verified."""
        with ExitStack() as stack:
            parts = self._parts_folder(stack)
            self._outcome.traffic = self._traffic()
            manifests: list[AnyPair] = []
            copy_all(self._without(manifests), self._copy)
            self._copy_manifests(manifests)
            if parts and not self._outcome.left_out and not self._outcome.conflicts:
                shutil.rmtree(parts, ignore_errors=True)
                self._cache.forget_folder(str(parts))
        return self._outcome

    # the plan

    def _traffic(self) -> Traffic:
        route = route_of(self._source, self._target)
        if not (isinstance(self._source, Prefix) and isinstance(self._target, Prefix)):
            return Traffic(route)
        here = self._objects.location(self._source.bucket)
        same = self._source.bucket == self._target.bucket
        return Traffic(route, here, here if same else self._objects.location(self._target.bucket))

    def _pairs(self) -> Iterator[AnyPair]:
        """What is at the source and can be at the target, with what is there."""
        # extra objects at the target are ignored
        yield from pairs(self._possible(), self._direction.target(lambda _: None))

    def _possible(self) -> Iterator[tuple[str, object]]:
        found = False
        for key, item in self._direction.source(self._leave_out):
            found = True
            reason = self._direction.why_not(key)
            if reason:
                self._leave_out(LeftOut(key or str(self._source), reason))
            else:
                yield key, item
        if not (found or self._outcome.left_out or isinstance(self._source, Folder)):
            raise NotFound(f"there is nothing below {self._source}")

    def _parts_folder(self, stack: ExitStack) -> Path | None:
        """The folder of unfinished downloads, for this process alone."""
        if not isinstance(self._target, Folder):
            return None
        parts = Path(os.path.realpath(self._target.path)) / PARTS_FOLDER
        try:
            parts.mkdir(parents=True, exist_ok=True)
            other = f"another `tpujob data sync` writes to {self._target}"
            stack.enter_context(alone(parts / "lock", other))
        except OSError as error:
            raise BadRequest(f"cannot write to {self._target}: {error.strerror}") from error
        self._cache.keep_folder(str(parts))
        return parts

    # the copying

    def _without(self, manifests: list[AnyPair]) -> Iterator[AnyPair]:
        """All pairs but those of manifests, which are added to the list."""
        for pair in self._pairs():
            self._progress.planned(pair.source.size)
            if pair.key.rpartition("/")[2] == MANIFEST:
                manifests.append(pair)
            else:
                yield pair

    def _copy_manifests(self, manifests: list[AnyPair]) -> None:
        """Copy the manifests of packed sets, after all that they name; none while something is left out, as a packed
        set with a manifest counts as whole."""
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
        """Copy one pair, and note what concerns it alone. Raises what concerns them all."""
        try:
            done = self._direction.copier.copy(pair)
        except Conflict as error:
            self._leave_out(LeftOut(pair.key, error.message), conflict=True)
            return
        except NotCopied as error:
            self._leave_out(LeftOut(pair.key, str(error)))
            return
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
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

    def _leave_out(self, one: LeftOut, *, conflict: bool = False) -> None:
        with self._lock:
            self._outcome.note(one, conflict=conflict)


def check(source: Place, target: Place) -> None:
    """Check what needs no request and no write. Raises BadRequest for two places between which nothing is copied,
    NotFound for a source on this machine that is missing."""
    if isinstance(source, Folder | UrlList):
        _check_here(source)
    if not isinstance(target, Folder | Prefix):
        raise BadRequest(
            f"nothing is written to {target}",
            hint="copy to a folder, or to gs://BUCKET/PREFIX",
        )
    if isinstance(source, Folder) and isinstance(target, Folder):
        raise BadRequest("both places are folders of this machine", hint="one must be elsewhere")
    if isinstance(source, Prefix) and isinstance(target, Prefix) and overlap(source, target):
        raise BadRequest(
            f"one of {source} and {target} contains the other", hint="name another prefix"
        )


def _check_here(source: Folder | UrlList) -> None:
    found = Path(source.path)
    if not found.exists():
        raise NotFound(f"there is no folder {source.path}")
    if isinstance(source, Folder) and not found.is_dir():
        raise BadRequest(
            f"{source.path} is not a folder",
            hint="name the folder that the file is in; a list of URLs begins with the line TsvHttpData-1.0",
        )
