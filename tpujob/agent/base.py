"""What every part of the agent knows: its folders, its failures, files and records in them, locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from typing import Any, Callable, Dict, Generator, Optional, cast

ROOT = os.path.join(os.path.expanduser("~"), ".tpujob")
ATTEMPTS = os.path.join(ROOT, "attempts")
CACHES = os.path.join(ROOT, "cache")  #: what may be lost at any time: a folder for each tool

Record = Dict[str, Any]
Note = Callable[[str], None]  #: takes a line for the attempt's log
Told = Callable[[], bool]  #: whether the attempt was told to stop
#: Does what it is given beside, so that a word to stop is heard, and raises Stopped then; else returns the same.
Aside = Callable[..., Any]


class Failure(Exception):
    """The attempt cannot go on: a sentence for a person and a cause of tpujob's list."""

    def __init__(self, message: str, cause: str = "SETUP") -> None:
        super().__init__(message)
        self.cause = cause


class Stopped(Exception):
    """Told to stop before the program was started."""


def read_json(path: str) -> Record:
    """Empty when there is none, or it is no object."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return cast(Record, record) if isinstance(record, dict) else {}


def write_json(path: str, record: Record) -> None:
    """Whole or not at all."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(temporary, path)


def remove_file(path: str) -> None:
    """Absent is success."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def fresh_folder(path: str) -> None:
    """There and empty afterwards, whatever was in it."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)


def attempt_path(plan: Record) -> str:
    """Where in the bucket an attempt's objects lie."""
    return "%s/attempts/%d" % (plan["workdir"], plan["attempt"])


def take_lock(path: str, patience: float) -> Optional[int]:
    """The lock's descriptor: the lock lasts until it is closed, or its process ends. None: not in time."""
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


@contextlib.contextmanager
def command_lock() -> Generator[None, None, None]:
    """One command at a time decides what becomes of this host."""
    os.makedirs(ATTEMPTS, mode=0o700, exist_ok=True)
    descriptor = take_lock(os.path.join(ROOT, "command.lock"), 60)
    if descriptor is None:
        raise Failure("another start or stop has been at it for a minute")
    try:
        yield
    finally:
        os.close(descriptor)
