"""Folders of the program that outlive the host: they are kept in the bucket, and are there again in the next attempt.

For programs that write checkpoints and results to plain files. What is new goes to the bucket at each checkpoint that
the program reports, every few minutes, and at its end. A checkpoint counts as committed once the bucket has it. Files
go up in the order in which they were written, so what a killed host leaves in the bucket is a state that its disk had.

Anybody with a right to the bucket can write objects. So only content that a signed list names is restored
(`output_list.py`), and no file is written through a symbolic link.
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
    insist,
)
from tpujob.agent.upload.output_list import Content, OutputList

THREADS = 8  #: that fetch what an earlier attempt kept
#: seconds between two looks for new files, while the program reports no checkpoint
EVERY = 300.0
#: seconds for which a file has not changed, unless a checkpoint was reported or the program has ended
SETTLED = 2.0
PATIENCE = 600.0  #: seconds that all of it is tried at the end
RETRY = 5.0  #: seconds between two tries for a checkpoint, and at the end
BATCH = 256 * 1024**2  #: bytes that are hashed before the list is written and they are sent
NOT_FOUND = 404  #: HTTP status
PART = ".tpujob-part-"  #: how names begin of files that are not whole as yet: they are never kept
SHOWN = 3  #: names of a kind in a line of the log; more are counted


class UnsignedOutputs(StorageError):
    """There are objects, but no list that this host of this job has signed."""


class _Version(NamedTuple):
    """By which a file is known to have changed."""

    size: int
    mtime_ns: int
    link: Optional[str]  #: where a symbolic link leads


class _Change(NamedTuple):
    """A file or link that the bucket does not have as it is."""

    name: str
    version: _Version
    content: Content
    md5: str  #: of a file, in base64


class Outputs:
    """What one host keeps of its program's folders."""

    def __init__(
        self,
        storage: Storage,
        work: str,
        folders: List[str],
        where: str,
        signed: OutputList,
        note: Note,
    ) -> None:
        """`folders` lie below `work`; `where` in the bucket is this host's alone."""
        self._storage, self._list, self._note = storage, signed, note
        self._work, self._folders, self._where = work, folders, where.rstrip("/") + "/"
        self._kept: Dict[str, _Version] = {}  #: what the bucket has, by path below `work`
        self._lock = threading.Lock()
        self._asked, self._over = threading.Event(), threading.Event()
        #: the newest checkpoint that the program reported
        self._newest: Optional[int] = None
        self.checkpoint: Optional[int] = None  #: the newest that the bucket has
        self._frozen = False
        self._wake: Optional[Wake] = None
        self._complained = ""

    # Before the program

    def restore(self) -> None:
        """Afterwards the folders hold what the signed list names and the bucket has; the log says what was left out.
        Raises UnsignedOutputs, StorageError, OSError."""
        for folder in self._folders:
            os.makedirs(os.path.join(self._work, folder), exist_ok=True)
        signed, objects = insist(self._list.read), insist(self._objects)
        if objects and not signed:
            text = "no list that this host has signed names %s below %s: an earlier version of tpujob wrote them, or "
            text += "the list was removed. Delete these objects to start without them; "
            text += "docs/data.md, Outputs, says how to use them"
            raise UnsignedOutputs(text % (_many(len(objects), "object"), self._where))
        named = {name: one for name, one in objects.items() if self._allowed(one)}
        replaced = self._replaced(named.keys())
        named = {name: one for name, one in named.items() if name not in replaced}
        good = [one for name, one in named.items() if named.keys().isdisjoint(_parents(name))]
        with ThreadPoolExecutor(THREADS) as pool:
            files = pool.map(self._fetch, [one for one in good if not one.link])
            back: Dict[str, Content] = dict(filter(None, files))
        # after the files, so that none of them is behind a link
        links = {one.name: one.link for one in good if one.link}
        out = self._make_links(links)
        back.update((name, Content(0, "", links[name])) for name in links if name not in out)
        listed = self._list.contents
        lost = [n for n, may in listed.items() if None not in may and n not in objects]
        other = objects.keys() - back.keys() - out - replaced
        # what was replaced is still to be deleted
        self._list.contents = {name: listed[name] for name in replaced}
        self._list.contents.update((name, [content]) for name, content in back.items())
        if back:
            size = sum(content.size for content in back.values())
            text = "outputs: %s, %d bytes of an earlier attempt are back"
            self._note(text % (_many(len(back), "file"), size))
        self._note_left_out("not as this host has listed them", other)
        self._note_left_out("links that lead out of the program's folder", out)
        self._note_left_out("listed, but not in the bucket", lost)

    def _objects(self) -> Dict[str, StoredObject]:
        return {one.name: one for one in self._storage.objects(self._where) if one.is_path}

    def _allowed(self, one: StoredObject) -> List[Content]:
        """Return what the list says of an object of that kind and size."""
        contents = self._list.contents.get(one.name, ())
        return [c for c in contents if c is not None and (c.size, c.link) == (one.size, one.link)]

    def _note_left_out(self, why: str, names: Collection[str]) -> None:
        if names:
            shown = ", ".join(map(repr, sorted(names)[:SHOWN]))
            more = ", ..." if len(names) > SHOWN else ""
            self._note("outputs: left out, %s: %d (%s%s)" % (why, len(names), shown, more))

    def _replaced(self, names: AbstractSet[str]) -> Set[str]:
        """Those that were being deleted, as a folder had taken the place of a file, or a file that of a folder."""
        deleted = {name for name in names if self._list.contents[name][-1] is None}
        stay = names - deleted
        folders = {parent for name in stay for parent in _parents(name)}
        return {n for n in deleted if n in folders or not stay.isdisjoint(_parents(n))}

    def _fetch(self, one: StoredObject) -> Optional[Tuple[str, Content]]:
        """Return the name and content of the file that is in place; None: the bucket has no such content any more, or
        the list does not name it. Raises StorageError, OSError."""
        path = self._place_of(one.name)
        if path is None:
            return None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part, may = _beside(path), {content.sha256 for content in self._allowed(one)}
        get = partial(fetch, self._storage, self._where + one.name, one, part, may)
        try:
            for _ in range(2):  # bytes may be damaged on the way
                with contextlib.suppress(WrongContent):
                    content = Content(one.size, insist(get))
                    os.replace(part, path)
                    self._kept[one.name] = _version(path)
                    return one.name, content
        except StorageError as error:
            if error.status != NOT_FOUND:  # else it was replaced after it was listed
                raise
        finally:
            remove_file(part)
        return None

    def _make_links(self, links: Dict[str, str]) -> AbstractSet[str]:
        """Make links, by name. Return the names of those that are not there: they would lead out of the program's
        folder."""
        made: Dict[str, str] = {}
        for name, target in links.items():
            path = self._place_of(name)
            if path is not None:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                part = _beside(path)
                os.symlink(target, part)
                os.replace(part, path)
                made[name] = path
        # Only now is it clear where they lead: one may lead through others, which may be removed here.
        while True:
            tops = {name: os.path.join(self._work, self._folder_of(name)) for name in made}
            out = [
                name
                for name, path in made.items()
                if not (is_below(path, self._work) or is_below(path, tops[name]))
            ]
            for name in out:
                os.unlink(made.pop(name))
            if not out:
                break
        self._kept.update((name, _version(path)) for name, path in made.items())
        return links.keys() - made.keys()

    def _place_of(self, name: str) -> Optional[str]:
        """Return the path of a file; None: a symbolic link is on the way from its output folder to it."""
        folder = self._folder_of(name)
        top = os.path.join(self._work, folder)
        path = os.path.join(os.path.realpath(top), name[len(folder) + 1 :])
        return path if os.path.realpath(os.path.dirname(path)) == os.path.dirname(path) else None

    def _folder_of(self, name: str) -> str:
        return next(one for one in self._folders if name.startswith(one + "/"))

    # While it runs

    def follow(self, wake: Wake) -> None:
        """Keep what is new from now on, until `finish`. Wake `wake` when the bucket has a checkpoint."""
        self._wake = wake
        threading.Thread(target=self._follow, name="outputs", daemon=True).start()

    def note_checkpoint(self, checkpoint: Optional[int]) -> Optional[int]:
        """Take the program's newest checkpoint. Return the newest that the bucket has."""
        if checkpoint is not None and checkpoint != self._newest:
            self._newest = checkpoint
            self._asked.set()
        return self.checkpoint

    def freeze(self, frozen: bool) -> None:
        """Whether to leave the bucket as it is: the program's numbers are not finite. What it wrote before, and is
        being sent, is still sent."""
        if frozen and not self._frozen:
            self._note("outputs: nothing more is kept while the program's numbers are not finite")
        self._frozen = frozen

    def _follow(self) -> None:
        left = False  #: of what was asked for
        while not self._over.is_set():
            asked = self._asked.wait(RETRY if left else EVERY) or left
            self._asked.clear()
            if not self._over.is_set():
                left = bool(self._keep(0 if asked else SETTLED)) and asked

    # At its end

    def finish(self, patience: float) -> str:
        """Keep all that is there, or try for so many seconds. Return what could not be kept; empty: all is kept."""
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
            if self._frozen:
                return ""
            checkpoint = self._newest  # read before the files are looked at
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
        for name in [*self._list.contents]:
            if name not in there:
                self._list.expect(name, None)
        batch: List[_Change] = []
        size = 0
        for mtime_ns, name in sorted(new):
            if settled and mtime_ns / 1e9 > old_enough:
                whole = False
                continue
            try:
                batch.append(_read(self._work, name, there[name]))
            except FileNotFoundError:
                whole = False
            size += there[name].size
            if size >= BATCH:
                whole, batch, size = self._send(batch) and whole, [], 0
        whole = self._send(batch) and whole
        for name in [*self._list.contents] if whole else []:
            if name not in there:
                self._storage.delete(self._where + name)
                del self._list.contents[name]
                self._kept.pop(name, None)
        self._list.write()
        return whole

    def _send(self, batch: List[_Change]) -> bool:
        """Write the list with the new content of these files, then the files. Return whether nothing was left for
        later. Raises StorageError, OSError."""
        for change in batch:
            self._list.expect(change.name, change.content)
        self._list.write()
        sent = [self._put(change) for change in batch]
        return all(sent)

    def _files(self) -> Iterator[Tuple[str, _Version]]:
        """Every file and link of the folders. One that vanishes meanwhile is left out."""
        for folder in self._folders:
            for root, folders, files in os.walk(os.path.join(self._work, folder)):
                links = [name for name in folders if os.path.islink(os.path.join(root, name))]
                for name in (n for n in files + links if not n.startswith(PART)):
                    path = os.path.join(root, name)
                    with contextlib.suppress(OSError):
                        if os.path.isfile(path) or os.path.islink(path):
                            yield os.path.relpath(path, self._work), _version(path)

    def _put(self, change: _Change) -> bool:
        """Store one change. False: the file changed or vanished meanwhile, and is tried again."""
        name, path = self._where + change.name, os.path.join(self._work, change.name)
        if _changed(path, change.version):  # it may speak of files that are written since
            return False
        try:
            if change.content.link:
                self._storage.put(name, b"", {LINK: change.content.link})
            else:
                self._storage.put_file(name, path, change.md5)
        except FileNotFoundError:
            return False
        except StorageError as error:
            # not the bytes that were hashed
            if error.status in (0, 400) and _changed(path, change.version):
                return False
            raise
        self._list.contents[change.name] = [change.content]
        if _changed(path, change.version):
            return False
        self._kept[change.name] = change.version
        return True


def _read(work: str, name: str, version: _Version) -> _Change:
    """Hash a file. Raises OSError."""
    if version.link is not None:
        return _Change(name, version, Content(0, "", version.link), "")
    sha256, md5 = digests_of(os.path.join(work, name))
    return _Change(name, version, Content(version.size, sha256), md5)


def _version(path: str) -> _Version:
    about = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(about.st_mode) else None
    return _Version(about.st_size, about.st_mtime_ns, link)


def _changed(path: str, version: _Version) -> bool:
    try:
        return _version(path) != version
    except OSError:
        return True


def _beside(path: str) -> str:
    """A name in the same folder that no other file has."""
    return os.path.join(os.path.dirname(path), PART + uuid.uuid4().hex)


def _many(n: int, thing: str) -> str:
    return "%d %s%s" % (n, thing, "" if n == 1 else "s")


def _parents(name: str) -> List[str]:
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
