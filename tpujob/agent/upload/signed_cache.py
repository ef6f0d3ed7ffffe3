"""Files in the bucket that hosts leave for later hosts of the same owner. Each is sealed with a key that only those
hosts and the backend have; what has no seal, or another content than was sealed, is never used.
"""

from __future__ import annotations

import hashlib
from typing import Dict, Iterator

from tpujob.agent.storage import PIECE, Storage, StorageError, StoredObject, WrongContent, fetch
from tpujob.protocol import signing

DIGEST, SEAL = "sha256", "mac"  #: in the metadata of an object


class BrokenSeal(StorageError):
    """It has another content than was sealed."""


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
            if self._is_sealed(one):
                yield one
            else:
                self._others[one.name] = one.generation

    def fetch(self, one: StoredObject, path: str) -> None:
        """Write its content to a file, which may be used only when this has returned. Raises BrokenSeal, StorageError,
        OSError."""
        try:
            fetch(self._storage, self._where + one.name, one, path, {one.metadata[DIGEST]})
        except WrongContent as error:
            self._others[one.name] = one.generation
            raise BrokenSeal("%s is not what was sealed" % one.name) from error

    def put(self, name: str, path: str) -> bool:
        """Seal a file and write it whole or not at all, unless there is a sealed one already. Return whether it was
        written. Raise StorageError, OSError."""
        digest = digest_of(path)
        sealed = {DIGEST: digest, SEAL: self._seal(name, digest)}
        over = self._others.get(name, "0")
        try:
            self._storage.put_file(self._where + name, path, metadata=sealed, over=over)
        except StorageError as error:
            if error.status == 412:
                return False
            raise
        return True

    def _is_sealed(self, one: StoredObject) -> bool:
        seal = self._seal(one.name, one.metadata.get(DIGEST, ""))
        return bool(self._key) and signing.same(seal, one.metadata.get(SEAL))

    def _seal(self, name: str, digest: str) -> str:
        """With its place, so that one file does not pass for another."""
        return signing.sign(self._key, "cache", self._where + name, digest)


def digest_of(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE), b""):
            found.update(piece)
    return found.hexdigest()
