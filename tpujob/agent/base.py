"""Basics of all parts of the agent: failures, JSON files, locks between processes, waking the main thread."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time
from types import MappingProxyType
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, cast

from tpujob.protocol import AgentCause, UnreachedDocument

Record = Dict[str, Any]
Note = Callable[[str], None]  #: writes a line to the attempt's log
#: raises Stopped once the attempt has to stop
Check = Callable[[], None]
#: calls a function on another thread and returns its result; raises Stopped once the attempt has to stop
Aside = Callable[..., Any]


class LaunchSecrets(NamedTuple):
    """Keys and secrets from standard input. They stay in memory; no file of this host gets them."""

    key: str = ""  #: the attempt's key: signs reports, and messages between hosts
    cache_key: str = ""  #: the owner's key: signs outputs and caches in the bucket for later hosts
    secrets: Mapping[str, str] = MappingProxyType({})  #: variables of set-up and the program


class Failure(Exception):
    """The attempt cannot continue. `late`, `unreached`: see ReportDocument."""

    def __init__(
        self,
        message: str,
        cause: AgentCause = "SETUP",
        *,
        late: bool = False,
        unreached: Optional[UnreachedDocument] = None,
    ) -> None:
        super().__init__(message)
        self.cause: AgentCause = cause
        self.late, self.unreached = late, unreached


class Stopped(Exception):
    """The attempt has to stop before its program is started."""


def read_json(path: str) -> Record:
    """Return the JSON object in a file, or an empty one if the file is missing or invalid."""
    try:
        with open(path, "rb") as file:
            return parse_json(file.read())
    except OSError:
        return {}


def parse_json(text: bytes) -> Record:
    """Return the JSON object in `text`, or an empty one if it is invalid."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast(Record, record) if isinstance(record, dict) else {}


def write_json(path: str, record: Mapping[str, Any]) -> None:
    """Write the file atomically."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(temporary, path)


def remove_file(path: str) -> None:
    """Delete the file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def take_lock(path: str, patience: float) -> Optional[int]:
    """Return the descriptor of the locked file, which unlocks when closed; None if the lock is held too long."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
            time.sleep(0.02)


def is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


# Waking up -----------------------------------------------------------------------------------------------------------


class Wake:
    """A wait of the main thread that a signal, the end of a child or a call of `up` ends early."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def up(self) -> None:
        """End the wait. Any thread may call it."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> None:
        if select.select([self._reader], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                os.read(self._reader, 4096)
