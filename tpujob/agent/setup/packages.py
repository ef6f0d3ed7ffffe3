"""Waits for whatever installs system packages on this host, before a set-up that may install some itself: a new VM
upgrades itself in the background for minutes, and a second apt would fail at once.

The lock files are root's and cannot be opened; who holds one is in `/proc/locks`, for everybody.
"""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Optional, Tuple

from tpujob.agent.base import Note
from tpujob.agent.processes import command_of

#: those of dpkg and apt; another list by TPUJOB_PACKAGE_LOCKS
LOCKS = (
    "/var/lib/dpkg/lock-frontend:/var/lib/dpkg/lock"
    ":/var/lib/apt/lists/lock:/var/cache/apt/archives/lock"
)
PATIENCE = 600.0  #: seconds; unattended-upgrades was seen to take ten minutes
SAY_EVERY = 60.0
PAUSE = 1.0  #: between two looks; unattended-upgrades lets go for a moment between two packages
_INSTALLS = re.compile(r"\b(apt|apt-get|aptitude|dpkg|sudo)\b|\.sh\b")


def may_install(setup: str) -> bool:
    """Whether that shell text names a tool for system packages, or a script that may."""
    return _INSTALLS.search(setup) is not None


def wait_for_others(note: Note, patience: float = PATIENCE) -> None:
    """Return when no lock is held on two looks in a row, or after `patience` seconds; the log says which."""
    holder = _holder()
    if holder is None:
        return
    begin = noted = time.monotonic()
    note("waiting for %s, which installs packages (%s)" % holder)
    free = 0
    while free < 2:
        now = time.monotonic()
        if now - begin > patience:
            note("packages are still being installed after %.0f s: going on" % (now - begin))
            return
        if now - noted > SAY_EVERY and holder is not None:
            noted = now
            note("still waiting for %s (%s)" % holder)
        time.sleep(PAUSE)
        holder = _holder()
        free = 0 if holder else free + 1
    note("the package locks are free after %.0f s" % (time.monotonic() - begin))


def _holder() -> Optional[Tuple[str, str]]:
    """Return a program and the lock file that it holds, or None if no lock is held."""
    files: Dict[str, str] = {}
    for path in os.environ.get("TPUJOB_PACKAGE_LOCKS", LOCKS).split(":"):
        try:
            found = os.stat(path)
        except OSError:
            continue
        device = "%02x:%02x:%d" % (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
        files[device] = path
    try:
        with open("/proc/locks", encoding="ascii") as table:
            lines = [line.split() for line in table]
    except OSError:
        return None
    for words in lines:
        # number, kind, ADVISORY, WRITE, pid, file; one that waits has `->` behind its number
        if len(words) > 5 and words[3] == "WRITE" and words[5] in files:
            return _name(words[4]), files[words[5]]
    return None


def _name(pid: str) -> str:
    command = command_of(int(pid))
    return "%s (pid %s)" % (command, pid) if command else "pid %s" % pid
