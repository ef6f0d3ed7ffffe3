"""Compiled programs that outlive a slice: XLA's cache, a folder on the host that is synchronised with the bucket.

JAX writes `gs://` paths itself only where more packages are installed, and then waits for the bucket when it compiles;
so JAX gets a folder. It is filled before the program starts, and what host 0 adds goes to the bucket while the program
runs: JAX writes from its first process alone, and all hosts read the same. What has no seal of the owner's hosts is not
fetched, as it is code. (On CPU, as emulated hosts have it, the names differ by host with jax 0.10.2, so that only
host 0 finds its own.) Entries are named by their content's key
and never change. The folder is one for each TPU type and each pair of versions of jax and libtpu.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import time
from typing import Dict, Iterator, Optional, Set

from tpujob.agent.base import Note, Record, remove_file
from tpujob.agent.storage import (
    Storage,
    StorageError,
    StoredObject,
    WrongContent,
    digests_of,
    fetch,
)
from tpujob.protocol import signing

MAX_BYTES = 4 * 1024**3  #: that are fetched before a program; the rest is compiled again
MAX_ENTRY = 1024**3  #: bytes of an entry that is put into the bucket
PATIENCE = 120.0  #: seconds that a program waits for its cache
EVERY = 30.0  #: seconds between two looks for new entries
SETTLED = 5.0  #: seconds that an entry has not grown: JAX writes them in place
SUFFIX = "-cache"  #: of an entry's file; JAX keeps other files beside them


def cache_name(type: str, versions: Record) -> str:
    """The folder of the entries for a type of TPU and these versions; empty: it is not known what is installed."""
    if not versions.get("jax"):
        return ""
    words = (type, "%s-%s" % (versions["jax"], versions.get("libtpu") or "cpu"))
    return "xla/" + "/".join(re.sub(r"[^A-Za-z0-9._-]", "_", word) for word in words)


class CompileCache:
    """The folder of one attempt's entries."""

    def __init__(self, kept: SealedFiles, folder: str, note: Note) -> None:
        """`kept` in the bucket, `folder` on this host."""
        self.folder, self._files, self._note = folder, kept, note
        self._kept: Set[str] = set()  #: those that the bucket has
        self._done = threading.Event()
        self._lock = threading.Lock()
        os.makedirs(folder, exist_ok=True)

    def fill(self) -> None:
        """Fetch what the bucket has, as far as there is time; what is not fetched is compiled again."""
        until, count, room = time.monotonic() + PATIENCE, 0, MAX_BYTES
        try:
            for one in self._files.list():
                if not _is_entry(one.name) or one.size > MAX_ENTRY:
                    continue
                path, room = os.path.join(self.folder, one.name), room - one.size
                absent = not os.path.exists(path) and room >= 0 and time.monotonic() <= until
                try:
                    count += absent and self._fetch(one, path)
                    self._kept.add(one.name)
                except WrongContent as error:
                    self._note("a compiled program is not used: %s" % error)
        except (OSError, StorageError) as error:
            self._note("compiled programs cannot be fetched: %s" % error)
        if count:
            self._note("compiled programs fetched from the bucket: %d" % count)

    def _fetch(self, one: StoredObject, path: str) -> bool:
        descriptor, part = tempfile.mkstemp(dir=self.folder, prefix=".")
        os.close(descriptor)
        try:
            self._files.fetch(one, part)
            os.replace(part, path)
        finally:
            remove_file(part)
        return True

    def follow(self) -> None:
        """Put new entries into the bucket from now on, until `finish`."""
        threading.Thread(target=self._follow, name="compiled", daemon=True).start()

    def _follow(self) -> None:
        while not self._done.wait(EVERY):
            self.keep(SETTLED)

    def finish(self, whole: bool) -> Optional[threading.Thread]:
        """The program has ended; `whole`: by itself, so that no entry is half written. What is left goes to the bucket
        on the thread that is returned; None: nothing is left."""
        self._done.set()
        settled = 0 if whole else SETTLED
        with contextlib.suppress(OSError):  # the thread says why
            if next(self._new(settled), None) is None:
                return None
        thread = threading.Thread(target=self.keep, args=(settled,), name="compiled", daemon=True)
        thread.start()
        return thread

    def keep(self, settled: float) -> None:
        """Put what is new and `settled` seconds old into the bucket."""
        with self._lock:
            try:
                for name in self._new(settled):
                    self._files.put(name, os.path.join(self.folder, name))
                    self._kept.add(name)
            except (OSError, StorageError) as error:
                self._note("compiled programs cannot be kept: %s" % error)

    def _new(self, settled: float) -> Iterator[str]:
        """The entries that the bucket does not have. Raises OSError."""
        for name in sorted(set(filter(_is_entry, os.listdir(self.folder))) - self._kept):
            about = os.stat(os.path.join(self.folder, name))
            if time.time() - about.st_mtime >= settled and about.st_size <= MAX_ENTRY:
                yield name


def _is_entry(name: str) -> bool:
    return name.endswith(SUFFIX) and "/" not in name and not name.startswith(".")


# Sealed files: what has no seal, or another content than was sealed, is never used -----------------------------------


DIGEST, SEAL = "sha256", "mac"  #: in the metadata of an object


class SealedFiles:
    """The files below one place of the bucket."""

    def __init__(self, storage: Storage, where: str, key: str) -> None:
        """With an empty key nothing counts as sealed, as anybody could have sealed it."""
        self._storage, self._where, self._key = storage, where, key
        self._others: Dict[str, str] = {}  #: name -> generation of what is there without a seal

    def list(self, name: str = "") -> Iterator[StoredObject]:
        """Those whose names begin so and that are sealed. Raises StorageError."""
        for one in self._storage.objects(self._where + name):
            one = one._replace(name=name + one.name)
            seal = self._seal(one.name, one.metadata.get(DIGEST, ""))
            if self._key and signing.same(seal, one.metadata.get(SEAL)):
                yield one
            else:
                self._others[one.name] = one.generation

    def fetch(self, one: StoredObject, path: str) -> None:
        """Write its content to a file, which may be used only when this has returned. Raises WrongContent,
        StorageError, OSError."""
        try:
            fetch(self._storage, self._where + one.name, one, path, {one.metadata[DIGEST]})
        except WrongContent:
            self._others[one.name] = one.generation
            raise

    def put(self, name: str, path: str) -> None:
        """Seal a file and write it whole or not at all, unless there is a sealed one already. Raise StorageError,
        OSError."""
        digest, _ = digests_of(path)
        sealed = {DIGEST: digest, SEAL: self._seal(name, digest)}
        over = self._others.get(name, "0")
        try:
            self._storage.put_file(self._where + name, path, metadata=sealed, over=over)
        except StorageError as error:
            if error.status != 412:
                raise

    def _seal(self, name: str, digest: str) -> str:
        """With its place, so that one file does not pass for another."""
        return signing.sign(self._key, "cache", self._where + name, digest)
