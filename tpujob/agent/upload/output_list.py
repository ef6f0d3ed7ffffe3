"""The signed list of the objects that hold one host's outputs. Objects outside of the list are never restored.

The list names the content that each object may have. It is written before objects change, with the old content and the
new one, and again afterwards, with the new one alone. So whenever a host is lost, the list names every object that a
host of this job has written, and a lost upload never costs an older file.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Dict, List, NamedTuple, Optional

from tpujob.agent.storage import Storage, StorageError, insist
from tpujob.protocol import signing

MAX_SIZE = 256 * 1024**2  #: bytes of a list
PATIENCE = 10.0  #: seconds for which a write is tried
ABSENT = (404, 416)  #: HTTP status of an object that is not there, or empty


class Content(NamedTuple):
    """What an object holds: a file, or the target of a symbolic link."""

    size: int
    sha256: str  #: of a file
    link: str = ""


class OutputList:
    """The list of one host. `contents` is what is to be written; threads do not share it."""

    def __init__(self, storage: Storage, path: str, key: str, owner: List[str]) -> None:
        """`path`: of the list in the bucket. `owner`: the words that name this host of this job, and no other. With an
        empty key no list counts as signed, as anybody could have signed it."""
        self._storage, self._path, self._key, self._owner = storage, path, key, owner
        #: by name, what its object may hold, what was last expected at the end; None: it may be absent
        self.contents: Dict[str, List[Optional[Content]]] = {}
        self._written = self._text()

    def read(self) -> bool:
        """Return whether the bucket has a list that this host of this job has signed; `contents` is that list. Raises
        StorageError."""
        pieces: List[bytes] = []
        try:
            self._storage.read(self._path, pieces.append, span=(0, MAX_SIZE))
        except StorageError as error:
            if error.status in ABSENT:
                return False
            raise
        mac, _, text = b"".join(pieces).partition(b"\n")
        if not self._key or not signing.verify(
            self._key, mac.decode("ascii", "replace"), "outputs", *self._signed(text)
        ):
            return False
        self.contents = {
            name: [None if one is None else Content(*one) for one in contents]
            for name, contents in json.loads(text)["objects"].items()
        }
        self._written = text
        return True

    def expect(self, name: str, content: Optional[Content]) -> None:
        """The object is about to get that content; None: to be deleted."""
        before = self.contents.get(name, [None])
        self.contents[name] = [*(one for one in before if one != content), content]

    def write(self) -> None:
        """Write the list, unless the bucket has it already. Raises StorageError, also for one that would be too large
        to be read: the bucket keeps the list it has."""
        text = self._text()
        if text == self._written:
            return
        data = signing.sign(self._key, "outputs", *self._signed(text)).encode() + b"\n" + text
        if len(data) > MAX_SIZE:
            many = "%d files are too many: their list would have more than %d MiB"
            raise StorageError(many % (len(self.contents), MAX_SIZE // 1024**2))
        self._written = b""  # an upload without an answer may have happened
        # Cloud Storage takes about one write of an object in a second, and refuses more
        insist(partial(self._storage.put, self._path, data), PATIENCE)
        self._written = text

    def _text(self) -> bytes:
        return json.dumps({"v": 1, "objects": self.contents}, sort_keys=True).encode()

    def _signed(self, text: bytes) -> tuple[signing.Part, ...]:
        return (*self._owner, text)
