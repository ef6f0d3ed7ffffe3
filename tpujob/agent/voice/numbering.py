"""The numbers of what a host says, which grow as long as its attempt lasts."""

from __future__ import annotations

import contextlib
import time
from typing import Optional

from tpujob.agent.base import read_json, write_json

AHEAD = 300_000  #: numbers that are reserved at once: milliseconds of the clock, so that a file is written as rarely
_MOST = 2**62  #: a reader keeps 63 bits


class Numbers:
    """They follow the clock in milliseconds, so that an agent whose folder was lost goes on. They grow also where the
    clock was put back before the agent was started anew, by a file of what was reserved."""

    def __init__(self, path: Optional[str]) -> None:
        """None: there is no place for a file."""
        self._path = path
        kept = read_json(path).get("reserved") if path else None
        self.last = kept if type(kept) is int and 0 <= kept < _MOST else 0
        self._reserved = self.last

    def next(self) -> int:
        """The next number, which is `last` from now on."""
        self.last = max(self.last + 1, int(time.time() * 1000))
        if self._path and self.last > self._reserved:
            with contextlib.suppress(OSError):  # a full disk: the clock alone has to do
                write_json(self._path, {"reserved": self.last + AHEAD})
                self._reserved = self.last + AHEAD
        return self.last
