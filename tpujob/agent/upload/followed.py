"""Uploads the log every few seconds while a reader follows it who cannot reach this host."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable

from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol.live import OLD

RARELY = 60.0  #: seconds between two looks for a follower, each a read of the bucket
OFTEN = 10.0  #: the same while there is one
EVERY = 5.0  #: seconds between two uploads of a host then, of at most so many hosts; of more, as much longer
HOSTS = 8
MOST = 20_000  #: such uploads: segments are numbered, and the numbers have an end


def watch_for_followers(
    storage: Storage, path: str, hosts: int, upload: Callable[[], None]
) -> None:
    """Start a thread that runs until the process ends. `path`: what a follower writes; `upload`: uploads the log."""
    every = EVERY * max(1.0, hosts / HOSTS)
    threading.Thread(
        target=_run, args=(storage, path, every, upload), name="followed", daemon=True
    ).start()


def _run(storage: Storage, path: str, every: float, upload: Callable[[], None]) -> None:
    times = 0
    while times < MOST:
        time.sleep(RARELY)
        while _is_followed(storage, path):
            until = time.monotonic() + OFTEN
            while time.monotonic() < until:
                upload()
                times += 1
                time.sleep(every)


def _is_followed(storage: Storage, path: str) -> bool:
    with contextlib.suppress(StorageError):
        age = storage.age(path)
        return age is not None and age < OLD
    return False
