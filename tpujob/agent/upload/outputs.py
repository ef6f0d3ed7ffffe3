"""Saves output folders of the program to the bucket, and restores them in the next attempt.

For programs that write checkpoints and results to plain files. New files are uploaded at each checkpoint that the
program reports, every few minutes, and at its end. A checkpoint counts as committed once the bucket has it. Files are
uploaded in the order of their modification, so a killed host leaves a state in the bucket that its disk had.

Other users of the bucket can write objects. So only content that a signed list names is restored (`output_list.py`),
and no file is written through a symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import AbstractSet, Collection, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from tpujob.agent.base import Note, Wake, remove_file
from tpujob.agent.folders import is_below
from tpujob.agent.storage import (
    LINK,
    Storage,
    StorageError,
    StoredObject,
    WrongContent,
    digests_of,
    fetch,
    retry,
)
from tpujob.agent.upload.output_list import Content, OutputList
from tpujob.lib.threads import start_loop

THREADS = 8  #: parallel downloads
EVERY = 300.0  #: seconds between two polls for new files, without a new checkpoint
#: seconds without a change after which a file is uploaded, unless a checkpoint was reported or the program has ended
SETTLED = 2.0
PATIENCE = 600.0  #: seconds of retries at the end
RETRY = 5.0  #: seconds between two tries for a checkpoint, and at the end
BATCH = 256 * 1024**2  #: bytes that are hashed, listed and uploaded together
NOT_FOUND = 404  #: HTTP status
PART = ".tpujob-part-"  #: prefix of incomplete downloads, which are never uploaded
SHOWN = 3  #: most names in a line of the log


class UnsignedOutputs(StorageError):
    """The bucket has objects, but no list that this host of this job has signed."""


class _Version(NamedTuple):
    """The attributes that differ once a file has changed."""

    size: int
    mtime_ns: int
    link: Optional[str]  #: the target of a symbolic link


class _Change(NamedTuple):
    """A new or changed file or link."""

    name: str
    version: _Version
    content: Content
    md5: str  #: of a file, in base64


class Outputs:
    """The output folders of one host. Names of files are relative to the program's folder."""

    def __init__(
        self,
        storage: Storage,
        work: str,
        folders: List[str],
        bucket_folder: str,
        signed: OutputList,
        note: Note,
    ) -> None:
        """`folders` are below `work`; `bucket_folder` is this host's alone."""
        self._storage, self._list, self._note, self._work = storage, signed, note, work
        self._folders = folders
        self._bucket_folder = bucket_folder.rstrip("/") + "/"
        self._saved: Dict[str, _Version] = {}  #: the files that the bucket has, by name
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._over = threading.Event()
        self._newest: Optional[int] = None  #: the newest checkpoint that the program reported
        self.checkpoint: Optional[int] = None  #: the newest checkpoint that the bucket has
        self._frozen = False
        self._wake: Optional[Wake] = None
        self._logged_error = ""

    # Before the program

    def restore(self) -> None:
        """Restore the listed files of the bucket. Raises UnsignedOutputs, StorageError, OSError."""
        for folder in self._folders:
            os.makedirs(os.path.join(self._work, folder), exist_ok=True)
        signed, objects = retry(self._list.read), retry(self._objects)
        if objects and not signed:
            text = "no list that this host has signed names %s below %s: an earlier version of tpujob wrote them, or "
            text += "the list was removed. Delete these objects to start without them; "
            text += "docs/data.md, Outputs, says how to use them"
            raise UnsignedOutputs(text % (_count(len(objects), "object"), self._bucket_folder))
        allowed = {name: file for name, file in objects.items() if self._allowed_contents(file)}
        replaced = self._replaced_names(allowed.keys())
        allowed = {name: file for name, file in allowed.items() if name not in replaced}
        good = [f for name, f in allowed.items() if allowed.keys().isdisjoint(_parents(name))]
        with ThreadPoolExecutor(THREADS) as pool:
            files = pool.map(self._fetch, [file for file in good if not file.link])
            restored: Dict[str, Content] = dict(filter(None, files))
        # after the files, so that none of them is behind a link
        links = {link.name: link.link for link in good if link.link}
        refused = self._make_links(links)
        restored.update((n, Content(0, "", links[n])) for n in links if n not in refused)
        listed = self._list.contents
        missing = [n for n, contents in listed.items() if None not in contents and n not in objects]
        mismatched = objects.keys() - restored.keys() - refused - replaced
        # replaced files must still be deleted
        self._list.contents = {name: listed[name] for name in replaced}
        self._list.contents.update((name, [content]) for name, content in restored.items())
        if restored:
            size = sum(content.size for content in restored.values())
            text = "outputs: %s, %d bytes of an earlier attempt are back"
            self._note(text % (_count(len(restored), "file"), size))
        self._note_left_out("not as this host has listed them", mismatched)
        self._note_left_out("links that lead out of the program's folder", refused)
        self._note_left_out("listed, but not in the bucket", missing)

    def _objects(self) -> Dict[str, StoredObject]:
        objects = self._storage.objects(self._bucket_folder)
        return {file.name: file for file in objects if file.is_path}

    def _allowed_contents(self, file: StoredObject) -> List[Content]:
        """Return the listed contents of that object's kind and size."""
        contents = self._list.contents.get(file.name, ())
        return [c for c in contents if c is not None and (c.size, c.link) == (file.size, file.link)]

    def _note_left_out(self, reason: str, names: Collection[str]) -> None:
        if names:
            shown = ", ".join(map(repr, sorted(names)[:SHOWN]))
            dots = ", ..." if len(names) > SHOWN else ""
            self._note("outputs: left out, %s: %d (%s%s)" % (reason, len(names), shown, dots))

    def _replaced_names(self, names: AbstractSet[str]) -> Set[str]:
        """Return the files whose deletion was under way because a folder had replaced them, or their folder a file."""
        deleted = {name for name in names if self._list.contents[name][-1] is None}
        present = names - deleted
        folders = {parent for name in present for parent in _parents(name)}
        return {n for n in deleted if n in folders or not present.isdisjoint(_parents(n))}

    def _fetch(self, file: StoredObject) -> Optional[Tuple[str, Content]]:
        """Restore a file, and return its name and content. None: its path has a link in it, or the bucket has no
        listed content of it any more. Raises StorageError, OSError."""
        path = self._path_of(file.name)
        if path is None:
            return None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = _part_path(path)
        sha256s = {content.sha256 for content in self._allowed_contents(file)}
        get = partial(fetch, self._storage, self._bucket_folder + file.name, file, part, sha256s)
        try:
            for _ in range(2):  # the first transfer may damage bytes
                with contextlib.suppress(WrongContent):
                    content = Content(file.size, retry(get))
                    os.replace(part, path)
                    self._saved[file.name] = _version(path)
                    return file.name, content
        except StorageError as error:
            if error.status != NOT_FOUND:  # 404: replaced after the list call
                raise
        finally:
            remove_file(part)
        return None

    def _make_links(self, links: Dict[str, str]) -> AbstractSet[str]:
        """Create links from targets by name. Return the names of links that would lead out of the program's folder."""
        paths: Dict[str, str] = {}
        for name, target in links.items():
            path = self._path_of(name)
            if path is not None:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                part = _part_path(path)
                os.symlink(target, part)
                os.replace(part, path)
                paths[name] = path
        # checked once all links exist, and again after each removal: a link may lead through others
        while True:
            tops = {name: os.path.join(self._work, self._folder_of(name)) for name in paths}
            outside = [
                name
                for name, path in paths.items()
                if not (is_below(path, self._work) or is_below(path, tops[name]))
            ]
            for name in outside:
                os.unlink(paths.pop(name))
            if not outside:
                break
        self._saved.update((name, _version(path)) for name, path in paths.items())
        return links.keys() - paths.keys()

    def _path_of(self, name: str) -> Optional[str]:
        """Return the path of a file; None: a folder between its output folder and the file is a symbolic link."""
        folder = self._folder_of(name)
        top = os.path.join(self._work, folder)
        path = os.path.join(os.path.realpath(top), name[len(folder) + 1 :])
        return path if os.path.realpath(os.path.dirname(path)) == os.path.dirname(path) else None

    def _folder_of(self, name: str) -> str:
        return next(folder for folder in self._folders if name.startswith(folder + "/"))

    # During the program

    def follow(self, wake: Wake) -> None:
        """Upload new files from now on, until `finish`. Wake `wake` when the bucket has a new checkpoint."""
        self._wake = wake
        start_loop("outputs", self._upload_forever)

    def note_checkpoint(self, checkpoint: Optional[int]) -> Optional[int]:
        """Take the program's newest checkpoint. Return the newest that the bucket has."""
        if checkpoint is not None and checkpoint != self._newest:
            self._newest = checkpoint
            self._due.set()
        return self.checkpoint

    def freeze(self, frozen: bool) -> None:
        """Start no upload while `frozen`: the program's numbers are not finite. Running uploads continue."""
        if frozen and not self._frozen:
            self._note("outputs: nothing more is kept while the program's numbers are not finite")
        self._frozen = frozen

    def _upload_forever(self) -> None:
        retry_soon = False  # for a checkpoint
        while not self._over.is_set():
            for_checkpoint = self._due.wait(RETRY if retry_soon else EVERY) or retry_soon
            self._due.clear()
            if not self._over.is_set():
                error = self._upload(0 if for_checkpoint else SETTLED)
                retry_soon = bool(error) and for_checkpoint

    # After the program

    def finish(self, patience: float) -> str:
        """Upload all files, with retries for `patience` seconds. Return the error; empty: the bucket has all files."""
        until = time.monotonic() + patience
        self._over.set()
        self._due.set()
        while True:
            error = self._upload(0)
            if not error or time.monotonic() + RETRY > until:
                return error
            time.sleep(RETRY)

    def _upload(self, age: float) -> str:
        """Upload files unchanged for `age` seconds. Return the error; empty: the bucket is up to date, or frozen."""
        with self._lock:
            if self._frozen:
                return ""
            checkpoint = self._newest  # read before the files
            try:
                complete = self._mirror(age)
            except (OSError, StorageError) as error:
                message = "outputs cannot be kept in the bucket: %s" % error
                if message != self._logged_error:
                    self._note(message)
                self._logged_error = message
                return message
            self._logged_error = ""
            if not complete:
                return "outputs changed while they were sent to the bucket"
            if checkpoint != self.checkpoint:
                self.checkpoint = checkpoint
                if self._wake is not None:
                    self._wake.up()
            return ""

    def _mirror(self, age: float) -> bool:
        """Upload changed files and delete the objects of deleted files, oldest changes first. Return whether the bucket
        is up to date; otherwise files are too young or changed meanwhile. Raises StorageError, OSError."""
        files = dict(self._files())
        now, complete = time.time(), True
        changed = [
            (version.mtime_ns, name)
            for name, version in files.items()
            if version != self._saved.get(name)
        ]
        for name in [*self._list.contents]:
            if name not in files:
                self._list.expect(name, None)
        batch: List[_Change] = []
        size = 0
        for mtime_ns, name in sorted(changed):
            # a time in the future shows that the clock was put back
            if now - age < mtime_ns / 1e9 <= now:
                complete = False
                continue
            try:
                batch.append(_hash_change(self._work, name, files[name]))
            except FileNotFoundError:
                complete = False
            size += files[name].size
            if size >= BATCH:
                complete = self._send(batch) and complete
                batch, size = [], 0
        complete = self._send(batch) and complete
        for name in [*self._list.contents] if complete else []:
            if name not in files:
                self._storage.delete(self._bucket_folder + name)
                del self._list.contents[name]
                self._saved.pop(name, None)
        self._list.write()
        return complete

    def _send(self, batch: List[_Change]) -> bool:
        """List the changes, then upload them. Return whether all were uploaded. Raises StorageError, OSError."""
        for change in batch:
            self._list.expect(change.name, change.content)
        self._list.write()
        uploaded = [self._put(change) for change in batch]
        return all(uploaded)

    def _files(self) -> Iterator[Tuple[str, _Version]]:
        """Yield every file and link of the folders, except those that vanish meanwhile."""
        for folder in self._folders:
            for root, folders, files in os.walk(os.path.join(self._work, folder)):
                links = [name for name in folders if os.path.islink(os.path.join(root, name))]
                for name in (n for n in files + links if not n.startswith(PART)):
                    path = os.path.join(root, name)
                    with contextlib.suppress(OSError):
                        if os.path.isfile(path) or os.path.islink(path):
                            yield os.path.relpath(path, self._work), _version(path)

    def _put(self, change: _Change) -> bool:
        """Upload a file or link. Return False if it changed or vanished meanwhile: the next call uploads it."""
        target, path = self._bucket_folder + change.name, os.path.join(self._work, change.name)
        # new content may refer to files that are not uploaded yet
        if _has_changed(path, change.version):
            return False
        try:
            if change.content.link:
                self._storage.put(target, b"", {LINK: change.content.link})
            else:
                self._storage.put_file(target, path, change.md5)
        except FileNotFoundError:
            return False
        except StorageError as error:
            # the uploaded bytes differ from the hashed ones
            if error.status in (0, 400) and _has_changed(path, change.version):
                return False
            raise
        self._list.contents[change.name] = [change.content]
        if _has_changed(path, change.version):
            return False
        self._saved[change.name] = change.version
        return True


def _hash_change(work: str, name: str, version: _Version) -> _Change:
    """Return the change with its content's hashes. Raises OSError."""
    if version.link is not None:
        return _Change(name, version, Content(0, "", version.link), "")
    sha256, md5 = digests_of(os.path.join(work, name))
    return _Change(name, version, Content(version.size, sha256), md5)


def _version(path: str) -> _Version:
    status = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    return _Version(status.st_size, status.st_mtime_ns, link)


def _has_changed(path: str, version: _Version) -> bool:
    try:
        return _version(path) != version
    except OSError:
        return True


def _part_path(path: str) -> str:
    """Return a new path for an incomplete file, in the folder of `path`."""
    return os.path.join(os.path.dirname(path), PART + uuid.uuid4().hex)


def _count(n: int, noun: str) -> str:
    return "%d %s%s" % (n, noun, "" if n == 1 else "s")


def _parents(name: str) -> List[str]:
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
