"""Saves output folders of the program to the bucket, and restores them in the next attempt.

For programs that write checkpoints and results to plain files. New files are uploaded at each checkpoint that the
program reports, once they are whole (`stillness.py`), every few minutes, and at its end. A checkpoint counts as
committed once the bucket has it. Files are uploaded in the order of their modification, so a killed host leaves a state
in the bucket that its disk had.

A file that the bucket cannot have, or that cannot be read, is left out; the log names it once. A checkpoint that it may
be part of does not count.

Other users of the bucket can write objects. So only content that a signed list names is restored (`output_list.py`),
and no file is written through a symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import (
    AbstractSet,
    Any,
    Callable,
    Collection,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

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
from tpujob.agent.upload.stillness import Stillness, is_log
from tpujob.lib.threads import start_loop
from tpujob.protocol import OutputsDocument
from tpujob.protocol.left_out import (
    NOT_A_FILE,
    NOT_UTF8,
    LeftOut,
    is_of_one_file,
    is_utf8,
    reason_of,
    why_no_object,
)
from tpujob.protocol.limits import MAX_EMPTY

THREADS = 8  #: parallel downloads
EVERY = 300.0  #: seconds between two polls for new files, without a new checkpoint
#: seconds without a change after which a file is uploaded, unless a checkpoint was reported or the program has ended
SETTLED = 2.0
LOOK = 5.0  #: seconds between two looks for whole files, at least; looks take a hundredth of the time at most
#: seconds between two uploads of whole files, at least. Also one for each file that the first of them sent, which
#: limits the operations of an hour, and four for each second that it took.
EARLY = 60.0
TAIL = 64  #: bytes at the end of an uploaded file that show whether it only grew
FINAL_TIMEOUT = 600.0  #: seconds of retries at the end
NOT_FOUND = 404  #: HTTP status
PART = ".tpujob-part-"  #: prefix of incomplete downloads, which are never uploaded
SHOWN = 3  #: most names in a line of the log
MAX_SHOWN_NAME = 120  #: characters of a name there
#: a folder on the way was replaced or deleted
GONE = (FileNotFoundError, NotADirectoryError)


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

    retry_in = 5.0  #: seconds between two tries for a checkpoint, and at the end
    batch = 256 * 1024**2  #: bytes that are hashed, listed and uploaded together

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
        self.restored = 0  #: files that `restore` has restored
        self._files: Dict[str, _Version] = {}  #: the files of the newest pass
        self._left_out: Dict[str, LeftOut] = {}  #: the others of that pass
        self._left_out_before: Dict[str, LeftOut] = {}  #: those at the newest checkpoint
        self._empty: List[str] = []  #: folders that were reported as empty
        #: contents that the bucket has, of files that may have changed since
        self._uploaded: Dict[str, Optional[Content]] = {}
        self._stillness = Stillness(folders)
        self._tails: Dict[str, bytes] = {}  #: the ends of files that the bucket has, by name
        self._early_at = 0.0  #: the monotonic time from which whole files are uploaded again
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._over = threading.Event()
        self._newest: Optional[int] = None  #: the newest checkpoint that the program reported
        self.checkpoint: Optional[int] = None  #: the newest checkpoint that the bucket has
        self._frozen = False
        self._wake: Optional[Wake] = None
        self._incomplete: Any = None  #: the newest checkpoint of which a file was left out
        self._complete = False  #: the program has ended as it should
        self._logged_error = ""

    # Before the program

    def restore(self, exact: Collection[str] = ()) -> None:
        """Restore the listed files of the bucket. The folders in `exact` then have no other files, if there is a list.
        Raises UnsignedOutputs, StorageError, OSError."""
        if not self._folders:
            return
        signed, objects = retry(self._list.read), retry(self._objects)
        for folder in exact if signed else ():
            shutil.rmtree(os.path.join(self._work, folder), ignore_errors=True)
        for folder in self._folders:
            os.makedirs(os.path.join(self._work, folder), exist_ok=True)
        if objects and not signed:
            text = "no list that this host has signed names %s below %s: the list was removed, "
            text += "or others wrote them. Delete these objects to start without them; "
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
        missing = [
            name
            for name, contents in listed.items()
            if None not in contents and name not in objects and self._folder_of(name)
        ]
        mismatched = objects.keys() - restored.keys() - refused - replaced
        # replaced files must still be deleted
        self._list.contents = {name: listed[name] for name in replaced}
        self._list.contents.update((name, [content]) for name, content in restored.items())
        self.restored = len(restored)
        if restored:
            size = sum(content.size for content in restored.values())
            text = "outputs: %s, %d bytes of an earlier attempt are back"
            self._note(text % (_count(len(restored), "file"), size))
        self._note_left_out("not as this host has listed them", mismatched)
        self._note_left_out("links that lead out of the program's folder", refused)
        self._note_left_out("listed, but not in the bucket", missing)

    def take_over(self) -> None:
        """Continue with the files of an earlier agent of the attempt: `finish` uploads those that the bucket lacks.
        Raises StorageError."""
        retry(self._list.read)
        objects = retry(self._objects)
        self._uploaded = {
            name: contents[0]
            for name, contents in self._list.contents.items()
            if len(contents) == 1 and name in objects and self._allowed_contents(objects[name])
        }

    def _objects(self) -> Dict[str, StoredObject]:
        objects = self._storage.objects(self._bucket_folder)
        return {file.name: file for file in objects if file.is_path and self._folder_of(file.name)}

    def _allowed_contents(self, file: StoredObject) -> List[Content]:
        """Return the listed contents of that object's kind and size."""
        contents = self._list.contents.get(file.name, ())
        return [c for c in contents if c is not None and (c.size, c.link) == (file.size, file.link)]

    def _note_left_out(self, reason: str, names: Collection[str]) -> None:
        if names:
            shown = ", ".join(repr(_shortened(name)) for name in sorted(names)[:SHOWN])
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
        """Return the output folder of a file; empty: it is in none of them."""
        return next((folder for folder in self._folders if name.startswith(folder + "/")), "")

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

    def lacks(self, checkpoint: Any) -> bool:
        """Return whether a file that was left out may be part of that checkpoint. If paths contain its step, those with
        the step are its files; otherwise every file that was written since the newest complete checkpoint may be."""
        if not self._left_out:
            return False
        has_step = re.compile(r"(?<!\d)0*%s(?!\d)" % re.escape(str(checkpoint))).search
        names = {
            name: name[len(self._folder_of(name)) :] for name in {**self._files, **self._left_out}
        }
        if any(has_step(path) for path in names.values()):
            return any(has_step(names[name]) for name in self._left_out)
        return any(self._left_out_before.get(n) != file for n, file in self._left_out.items())

    def facts(self) -> OutputsDocument:
        """Return the facts for the report."""
        empty = self._empty[:MAX_EMPTY]
        return {"restored": self.restored, "left_out": len(self._left_out), "empty": empty}

    def freeze(self, frozen: bool) -> None:
        """Start no upload while `frozen`: the program's numbers are not finite. Running uploads continue."""
        if frozen and not self._frozen:
            self._note("outputs: nothing more is kept while the program's numbers are not finite")
        self._frozen = frozen

    def _upload_forever(self) -> None:
        retry_soon = False  # for a checkpoint
        polled, pause = time.monotonic(), LOOK
        while not self._over.is_set():
            pause = max(0.0, min(pause, polled + EVERY - time.monotonic()))
            for_checkpoint = self._due.wait(self.retry_in if retry_soon else pause) or retry_soon
            self._due.clear()
            if self._over.is_set():
                break
            if for_checkpoint or time.monotonic() >= polled + EVERY:
                error = self._upload(0 if for_checkpoint else SETTLED)
                retry_soon = bool(error) and for_checkpoint
                polled, pause = time.monotonic(), LOOK
            else:
                pause = self._look()

    def _look(self) -> float:
        """Upload the whole files if any is new, unless it is too soon. Return the seconds until the next look."""
        began = time.monotonic()
        whole = self._stillness.whole(self._scan()[0], began)
        pause = min(EVERY, max(LOOK, 100 * (time.monotonic() - began)))
        changed = [name for name, version in whole.items() if version != self._saved.get(name)]
        if began >= self._early_at and any(
            not is_log(name) and not self._only_grew(name, whole[name]) for name in changed
        ):
            self._upload(0, whole)
            now = time.monotonic()
            self._early_at = now + max(EARLY, len(changed), 4 * (now - began))
        return pause

    def _only_grew(self, name: str, version: _Version) -> bool:
        """Return whether a file has what the bucket has of it, and more."""
        saved, tail = self._saved.get(name), self._tails.get(name)
        if not saved or not tail or version.size <= saved.size:
            return False
        return _tail(os.path.join(self._work, name), saved.size) == tail

    # After the program

    def finish(self, patience: float, complete: bool = False) -> str:
        """Upload all files, with retries for `patience` seconds. Return the error; empty: the bucket has all files that
        it can have. `complete`: the program has written what it had to write, so that no folder should be empty."""
        until = time.monotonic() + patience
        self._complete = complete
        self._over.set()
        self._due.set()
        while True:
            error = self._upload(0)
            if not error or time.monotonic() + self.retry_in > until:
                return error
            time.sleep(self.retry_in)

    def _upload(self, age: float, only: Optional[Dict[str, _Version]] = None) -> str:
        """Upload files unchanged for `age` seconds, or `only` these, which decides on no checkpoint. Return the error;
        empty: the bucket is up to date, or frozen."""
        with self._lock:
            if self._frozen:
                return ""
            checkpoint = self._newest  # read before the files
            try:
                complete = self._mirror(age, only)
            except (OSError, StorageError) as error:
                message = "outputs cannot be kept in the bucket: %s" % error
                if message != self._logged_error:
                    self._note(message)
                self._logged_error = message
                return message
            self._logged_error = ""
            if only is not None:
                return ""
            if not complete:
                return "outputs changed while they were sent to the bucket"
            self._note_empty(checkpoint)
            if checkpoint != self.checkpoint:
                self._judge(checkpoint)
            return ""

    def _note_empty(self, checkpoint: Optional[int]) -> None:
        """Note the folders that have no file although they should."""
        present = {self._folder_of(name) for name in (*self._files, *self._left_out)}
        empty = [folder for folder in self._folders if folder not in present]
        if checkpoint is None and not self._complete:
            empty = []
        if new := [folder for folder in empty if folder not in self._empty]:
            after = "at the end" if checkpoint is None else "after checkpoint %s" % checkpoint
            self._note("outputs: empty %s: %s" % (after, ", ".join(map(_shortened, new))))
        self._empty = empty

    def _judge(self, checkpoint: Any) -> None:
        """Count a checkpoint whose files the bucket has."""
        if self.lacks(checkpoint):
            if checkpoint != self._incomplete:
                text = "outputs: checkpoint %s is not complete: files of it are left out"
                self._note(text % checkpoint)
            self._incomplete = checkpoint
        elif self._files:
            self.checkpoint, self._left_out_before = checkpoint, self._left_out
            if self._wake is not None:
                self._wake.up()

    def _mirror(self, age: float, only: Optional[Dict[str, _Version]]) -> bool:
        """Upload changed files and delete the objects of deleted files, oldest changes first. Return whether the bucket
        is up to date; otherwise files are too young, not in `only`, or changed meanwhile. Raises StorageError, OSError.
        """
        files, left_out = self._scan()
        now, complete = time.time(), True
        changed = [
            (version.mtime_ns, name)
            for name, version in files.items()
            if version != self._saved.get(name)
        ]
        deleted = [
            name
            for name in self._list.contents
            if name not in files and left_out.keys().isdisjoint((name, *_parents(name)))
        ]
        for name in deleted:
            self._list.expect(name, None)
        batch: List[_Change] = []
        size = 0
        for mtime_ns, name in sorted(changed):
            if only is not None and only.get(name) != files[name]:
                # a log that always grows must not keep deleted checkpoints in the bucket
                complete = complete and is_log(name)
                continue
            # a time in the future shows that the clock was put back
            if only is None and now - age < mtime_ns / 1e9 <= now:
                complete = False
                continue
            try:
                batch.append(_hash_change(self._work, name, files[name]))
            except GONE:
                complete = False
            except OSError as error:
                if not is_of_one_file(error):
                    raise
                left_out[name] = LeftOut(name, reason_of(error), files.pop(name))
                continue
            size += files[name].size
            if size >= self.batch:
                complete = self._send(batch) and complete
                batch, size = [], 0
        complete = self._send(batch) and complete
        for name in deleted if complete else []:
            self._storage.delete(self._bucket_folder + name)
            del self._list.contents[name]
            self._saved.pop(name, None)
            self._tails.pop(name, None)
        self._list.write()
        self._files = files
        self._leave_out(left_out)
        return complete

    def _leave_out(self, left_out: Dict[str, LeftOut]) -> None:
        """Keep the files that this pass has left out, and note the new ones."""
        new: Dict[str, List[str]] = {}
        for name, file in left_out.items():
            before = self._left_out.get(name)
            if before is None or before.reason != file.reason:
                new.setdefault(file.reason, []).append(name)
        for reason, names in new.items():
            self._note_left_out(reason, names)
        self._left_out = left_out

    def _send(self, batch: List[_Change]) -> bool:
        """List the changes, then upload them. Return whether all were uploaded. Raises StorageError, OSError."""
        for change in batch:
            self._list.expect(change.name, change.content)
        self._list.write()
        uploaded = [self._put(change) for change in batch]
        return all(uploaded)

    def _scan(self) -> Tuple[Dict[str, _Version], Dict[str, LeftOut]]:
        """Return every file and link of the folders, except those that vanish meanwhile, and what is left out."""
        files: Dict[str, _Version] = {}
        left_out: Dict[str, LeftOut] = {}

        def skip_folder(error: OSError) -> None:
            if not isinstance(error, GONE):
                name = os.path.relpath(error.filename, self._work)
                left_out[name] = LeftOut(name, reason_of(error))

        for path in self._paths(skip_folder):
            name = os.path.relpath(path, self._work)
            try:
                version = _version(path)
                reason = _why_not(self._bucket_folder + name, version, os.lstat(path).st_mode)
            except GONE:
                continue
            except OSError as error:
                left_out[name] = LeftOut(name, reason_of(error))
                continue
            if reason:
                left_out[name] = LeftOut(name, reason, version)
            else:
                files[name] = version
        return files, left_out

    def _paths(self, skip_folder: Callable[[OSError], None]) -> Iterator[str]:
        for folder in self._folders:
            for root, folders, files in os.walk(
                os.path.join(self._work, folder), onerror=skip_folder
            ):
                links = [name for name in folders if os.path.islink(os.path.join(root, name))]
                yield from (os.path.join(root, n) for n in files + links if not n.startswith(PART))

    def _put(self, change: _Change) -> bool:
        """Upload a file or link. Return False if it changed or vanished meanwhile: the next call uploads it."""
        target, path = self._bucket_folder + change.name, os.path.join(self._work, change.name)
        # new content may refer to files that are not uploaded yet
        if _has_changed(path, change.version):
            return False
        try:
            if self._uploaded.pop(change.name, None) == change.content:
                pass
            elif change.content.link:
                self._storage.put(target, b"", {LINK: change.content.link})
            else:
                self._storage.put_file(target, path, change.md5)
        except OSError as error:
            if not is_of_one_file(error):
                raise
            return False
        except StorageError as error:
            # the uploaded bytes differ from the hashed ones
            if error.status in (0, 400) and _has_changed(path, change.version):
                return False
            raise
        self._list.contents[change.name] = [change.content]
        self._tails[change.name] = _tail(path, change.version.size)
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


def _why_not(path: str, version: _Version, mode: int) -> str:
    """Return why the bucket cannot have a file at that `gs://` path; empty: it can."""
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return NOT_A_FILE
    if not is_utf8(version.link or ""):
        return NOT_UTF8
    return why_no_object(path.partition("://")[2].partition("/")[2])


def _shortened(name: str) -> str:
    half = MAX_SHOWN_NAME // 2
    return name if len(name) <= MAX_SHOWN_NAME else name[:half] + "..." + name[-half:]


def _version(path: str) -> _Version:
    status = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    return _Version(status.st_size, status.st_mtime_ns, link)


def _has_changed(path: str, version: _Version) -> bool:
    try:
        return _version(path) != version
    except OSError:
        return True


def _tail(path: str, end: int) -> bytes:
    """Return the bytes of a file before `end`; empty: it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, end - TAIL))
            return file.read(min(TAIL, end))
    except OSError:
        return b""


def _part_path(path: str) -> str:
    """Return a new path for an incomplete file, in the folder of `path`."""
    return os.path.join(os.path.dirname(path), PART + uuid.uuid4().hex)


def _count(n: int, noun: str) -> str:
    return "%d %s%s" % (n, noun, "" if n == 1 else "s")


def _parents(name: str) -> List[str]:
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
