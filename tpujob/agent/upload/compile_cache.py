"""Compiled programs that outlive a slice: XLA's cache, a folder on the host that is synchronised with the bucket.

JAX gets a folder because it writes `gs://` paths only with further packages, and then waits for the bucket when it
compiles. The agent fills the folder before the program starts. While the program runs, host 0 uploads new entries: only
JAX's first process writes them. All hosts read the same entries; on CPU, as on emulated hosts, jax 0.10.2 names them by
host, so that only host 0 finds its entries. Entries are code, so entries without a seal of the owner's hosts are not
fetched. An entry never changes. Each TPU type and each pair of versions of jax and libtpu has a folder.
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
from tpujob.lib.threads import start_loop
from tpujob.protocol import signing

MAX_BYTES = 4 * 1024**3  #: bytes that are fetched before the program; JAX compiles the rest again
MAX_ENTRY = 1024**3  #: bytes of an entry that is transferred
FETCH_TIMEOUT = 120.0  #: seconds that the program waits for its cache
EVERY = 30.0  #: seconds between two polls for new entries
SETTLED = 5.0  #: seconds without a change after which an entry is complete: JAX writes in place
SUFFIX = "-cache"  #: the suffix of entries; JAX has other files beside them


def cache_name(tpu_type: str, versions: Record) -> str:
    """Return the folder of the entries for a TPU type and installed versions; empty: the versions are unknown."""
    if not versions.get("jax"):
        return ""
    parts = (tpu_type, "%s-%s" % (versions["jax"], versions.get("libtpu") or "cpu"))
    return "xla/" + "/".join(re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in parts)


class CompileCache:
    """The cache of one attempt: a folder of this host, synchronised with files in the bucket."""

    def __init__(self, files: SealedFiles, folder: str, note: Note) -> None:
        self.folder, self._files, self._note = folder, files, note
        self._uploaded: Set[str] = set()  #: names of the entries in the bucket
        self._done = threading.Event()
        self._lock = threading.Lock()
        os.makedirs(folder, exist_ok=True)

    def fill(self) -> None:
        """Fetch entries from the bucket, up to MAX_BYTES; after FETCH_TIMEOUT begin no further entry."""
        until, count, room = time.monotonic() + FETCH_TIMEOUT, 0, MAX_BYTES
        try:
            for entry in self._files.list():
                if not _is_entry(entry.name) or entry.size > MAX_ENTRY:
                    continue
                path = os.path.join(self.folder, entry.name)
                room -= entry.size
                try:
                    if not os.path.exists(path) and room >= 0 and time.monotonic() <= until:
                        self._fetch(entry, path)
                        count += 1
                    self._uploaded.add(entry.name)
                except WrongContent as error:
                    self._note("a compiled program is not used: %s" % error)
        except (OSError, StorageError) as error:
            self._note("compiled programs cannot be fetched: %s" % error)
        if count:
            self._note("compiled programs fetched from the bucket: %d" % count)

    def _fetch(self, entry: StoredObject, path: str) -> None:
        descriptor, part = tempfile.mkstemp(dir=self.folder, prefix=".")
        os.close(descriptor)
        try:
            self._files.fetch(entry, part)
            os.replace(part, path)
        finally:
            remove_file(part)

    def follow(self) -> None:
        """Upload new entries from now on, until `finish`."""
        start_loop("compiled", self._upload_forever)

    def _upload_forever(self) -> None:
        while not self._done.wait(EVERY):
            self.upload(SETTLED)

    def finish(self, whole: bool) -> Optional[threading.Thread]:
        """Upload the remaining entries after the end of the program, and return the thread that does it, or None if no
        entry remains. `whole`: the program was not killed, so all entries are complete."""
        self._done.set()
        age = 0 if whole else SETTLED
        with contextlib.suppress(OSError):  # the thread logs the error
            if next(self._new_entries(age), None) is None:
                return None
        thread = threading.Thread(target=self.upload, args=(age,), name="compiled", daemon=True)
        thread.start()
        return thread

    def upload(self, age: float) -> None:
        """Upload the new entries that have not changed for `age` seconds."""
        with self._lock:
            try:
                for name in self._new_entries(age):
                    self._files.put(name, os.path.join(self.folder, name))
                    self._uploaded.add(name)
            except (OSError, StorageError) as error:
                self._note("compiled programs cannot be kept: %s" % error)

    def _new_entries(self, age: float) -> Iterator[str]:
        """Yield the names of entries that are not in the bucket. Raises OSError."""
        for name in sorted(set(filter(_is_entry, os.listdir(self.folder))) - self._uploaded):
            status = os.stat(os.path.join(self.folder, name))
            is_complete = not age or time.time() - status.st_mtime >= age
            if is_complete and status.st_size <= MAX_ENTRY:
                yield name


def _is_entry(name: str) -> bool:
    return name.endswith(SUFFIX) and "/" not in name and not name.startswith(".")


# Sealed files: files without a valid seal are never used -------------------------------------------------------------


DIGEST, SEAL = "sha256", "mac"  #: keys of an object's metadata


class SealedFiles:
    """The files of one folder of the bucket, each with a signature of path and content: the seal."""

    def __init__(self, storage: Storage, folder: str, key: str) -> None:
        """`folder` ends in `/`. With an empty key no seal is valid."""
        self._storage, self._folder, self._key = storage, folder, key
        self._unsealed: Dict[str, str] = {}  #: generations of files without a valid seal, by name

    def list(self, name: str = "") -> Iterator[StoredObject]:
        """Yield the sealed files whose names begin with `name`. Raises StorageError."""
        for listed in self._storage.objects(self._folder + name):
            file = listed._replace(name=name + listed.name)
            seal = self._seal(file.name, file.metadata.get(DIGEST, ""))
            if self._key and signing.same(seal, file.metadata.get(SEAL)):
                yield file
            else:
                self._unsealed[file.name] = file.generation

    def fetch(self, file: StoredObject, path: str) -> None:
        """Download a file of `list` to `path`. Raises WrongContent, StorageError, OSError; `path` is then unusable."""
        try:
            fetch(self._storage, self._folder + file.name, file, path, {file.metadata[DIGEST]})
        except WrongContent:
            self._unsealed[file.name] = file.generation
            raise

    def put(self, name: str, path: str) -> None:
        """Upload the file at `path` with its seal, unless a sealed file has the name. Raises StorageError, OSError."""
        digest, _ = digests_of(path)
        metadata = {DIGEST: digest, SEAL: self._seal(name, digest)}
        replaced = self._unsealed.get(name, "0")
        try:
            target = self._folder + name
            self._storage.put_file(target, path, metadata=metadata, if_generation=replaced)
        except StorageError as error:
            if error.status != 412:
                raise

    def _seal(self, name: str, digest: str) -> str:
        return signing.sign(self._key, "cache", self._folder + name, digest)
