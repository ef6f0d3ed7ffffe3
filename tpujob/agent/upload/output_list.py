"""The signed list of a host's outputs in the bucket. Objects that are not listed are never restored.

The list has the contents that each object may have. It is written before objects change, with the old and the new
contents, and again afterwards, with the new contents alone. So whenever a host is lost, the list names every object
that a host of this job has written, and a lost upload never costs an older file.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Optional

from tpujob.agent.storage import Storage, StorageError, retry
from tpujob.protocol import signing

WRITE_TIMEOUT = 10.0  #: seconds of retries for a write
ABSENT = (404, 416)  #: HTTP statuses of absent and of empty objects


class Content(NamedTuple):
    """The content of an object: a file, or the target of a symbolic link."""

    size: int
    sha256: str  #: of a file; empty for a link
    link: str = ""


class OutputList:
    """The list of one host. `contents` are written by `write`. For one thread at a time."""

    max_size = 256 * 1024**2  #: bytes of a list

    def __init__(
        self,
        storage: Storage,
        path: str,
        key: str,
        owner: List[str],
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`owner` are words that name this host of this job alone. With an empty key no signature is valid."""
        self._storage, self._path, self._key, self._owner = storage, path, key, owner
        self._wait = wait
        #: the contents that each object may have, by name, the newest last; None: absent
        self.contents: Dict[str, List[Optional[Content]]] = {}
        self._written = self._text()

    def read(self) -> bool:
        """Read the bucket's list, and return whether it has a valid signature. Raises StorageError."""
        pieces: List[bytes] = []
        try:
            self._storage.read(self._path, pieces.append, span=(0, self.max_size))
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
            name: [None if fields is None else Content(*fields) for fields in contents]
            for name, contents in json.loads(text)["objects"].items()
        }
        self._written = text
        return True

    def expect(self, name: str, content: Optional[Content]) -> None:
        """Add the content that the object is about to get; None: deletion."""
        contents = self.contents.get(name, [None])
        self.contents[name] = [*(old for old in contents if old != content), content]

    def write(self) -> None:
        """Write the list unless the bucket has it. Raises StorageError, also for a list above `max_size`."""
        text = self._text()
        if text == self._written:
            return
        data = signing.sign(self._key, "outputs", *self._signed(text)).encode() + b"\n" + text
        if len(data) > self.max_size:
            message = "%d files are too many: their list would have more than %d MiB"
            raise StorageError(message % (len(self.contents), self.max_size // 1024**2))
        self._written = b""  # a failed upload may have replaced the list
        # Cloud Storage accepts about one write a second of an object
        retry(partial(self._storage.put, self._path, data), WRITE_TIMEOUT, self._wait)
        self._written = text

    def _text(self) -> bytes:
        return json.dumps({"v": 1, "objects": self.contents}, sort_keys=True).encode()

    def _signed(self, text: bytes) -> tuple[signing.Part, ...]:
        return (*self._owner, text)
