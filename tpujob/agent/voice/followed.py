"""Makes the hosts ship their logs every few seconds while somebody follows who can hear them in no other way."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable

from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol.live import OLD

RARELY = 60.0  #: seconds between two looks, each a read of the bucket
OFTEN = 10.0  #: the same while somebody follows
EVERY = 5.0  #: seconds between two times that all hosts ship, then
MOST = 20_000  #: such times: pieces of a log are numbered, and the numbers have an end


class Followed:
    """Looks until its process ends."""

    def __init__(
        self, storage: Storage, path: str, speaks: Callable[[], bool], ship: Callable[[], None]
    ) -> None:
        """`path`: what a follower writes; `speaks`: whether this host looks for all; `ship`: makes all of them ship."""
        self._storage, self._path, self._speaks, self._ship = storage, path, speaks, ship
        threading.Thread(target=self._run, name="followed", daemon=True).start()

    def _run(self) -> None:
        times = 0
        while times < MOST:
            time.sleep(RARELY)
            while self._speaks() and self._is_followed():
                until = time.monotonic() + OFTEN
                while time.monotonic() < until:
                    self._ship()
                    times += 1
                    time.sleep(EVERY)

    def _is_followed(self) -> bool:
        with contextlib.suppress(StorageError):
            age = self._storage.age(self._path)
            return age is not None and age < OLD
        return False
