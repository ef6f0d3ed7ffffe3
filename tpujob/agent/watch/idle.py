"""How long the program has shown no sign of progress: in seconds by this host's monotonic clock, and in looks."""

from __future__ import annotations

import os
import time
from typing import Dict, Set, Tuple

from tpujob.agent.processes import Find, read_proc
from tpujob.agent.upload import ProgressReader
from tpujob.agent.watch.patterns import PatternWatch
from tpujob.protocol import ReportDocument, StallRule

EVERY = 1.0  #: seconds from look to look
BUSY = 0.01  #: of one core: what uses less does nothing
CENSUS = 10.0  #: seconds for which the list of processes holds


class Idle:
    """A sign is a matching line where `watch.progress` is given; else an event of the contract where the program writes
    them; else any output, or CPU time."""

    def __init__(self, watch: PatternWatch, progress: ProgressReader, find: Find) -> None:
        """`find`: the program's processes."""
        self._watch, self._progress, self._effort = watch, progress, Effort(find)
        self._since = self._looked = time.monotonic()
        self._looks = 0
        self._sign = self._newest()

    def look(self) -> None:
        """Looks once a second, however often it is called."""
        now = time.monotonic()
        if now - self._looked < EVERY * 0.9:
            return
        self._looked = now
        sign = self._newest()
        if sign != self._sign or (not self._tells() and self._effort.made()):
            self._sign, self._since, self._looks = sign, now, 0
        else:
            self._looks += 1

    def idle(self) -> float:
        """Seconds without a sign."""
        return max(0.0, time.monotonic() - self._since) if self._looks else 0.0

    def vitals(self) -> ReportDocument:
        """For the report."""
        return {"idle": round(self.idle(), 1), "looks": self._looks}

    def stalled(self, rule: StallRule, early: float = 0.0) -> bool:
        """Whether nothing was done for as long as the plan's `stall` says, or will have been `early` seconds from
        now. The first step takes longer: compiling is part of it."""
        facts = self._progress.facts
        waits = facts.get("program_phase") and facts.get("step") is None
        limit = rule["first"] if waits else rule["seconds"]
        return bool(limit) and self._looks >= rule["looks"] and self.idle() >= limit - early

    def _tells(self) -> bool:
        return self._watch.progress or self._progress.signs > 0

    def _newest(self) -> Tuple[str, int]:
        if self._watch.progress:
            return ("matches", self._watch.signs)
        if self._progress.signs:
            return ("events", self._progress.signs)
        return ("lines", self._watch.lines)


class Effort:
    """CPU time that processes use."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._pids: Set[int] = set()
        self._used: Dict[int, int] = {}
        self._counted, self._asked = -CENSUS, time.monotonic()

    def made(self) -> bool:
        """Whether they worked since the last call."""
        now = time.monotonic()
        if now - self._counted >= CENSUS:
            self._pids, self._counted = self._find(), now
        used = {pid: _ticks(pid) for pid in self._pids}
        spent = sum(max(0, ticks - self._used.get(pid, 0)) for pid, ticks in used.items())
        elapsed, self._asked, self._used = now - self._asked, now, used
        return spent / os.sysconf("SC_CLK_TCK") >= BUSY * elapsed


def _ticks(pid: int) -> int:
    """Of the process and of its children that have ended; 0: it is gone."""
    fields = read_proc(pid, "stat").rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])) if len(fields) > 14 else 0
