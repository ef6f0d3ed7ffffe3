"""Watches the program while it runs: whether it goes on, where it hangs, what its output says; and hears of preemption.

Nothing is concluded here: the backend decides on what is reported.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from tpujob.agent.base import Wake
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.patterns import PatternWatch
from tpujob.agent.processes import Find, read_proc
from tpujob.agent.stack_traces import collect
from tpujob.agent.upload import Log, ProgressReader, ReportWriter, first_lines
from tpujob.protocol import (
    PREEMPTED,
    MaintenanceDocument,
    Plan,
    ReportDocument,
    StallRule,
    VerdictDocument,
)
from tpujob.protocol.limits import MAX_VERDICT_TEXT

#: seconds before the limit, so that the backend finds the stacks when it acts on the limit
EARLY = 5.0


class Supervision:
    """From the start of the program to its end. Made, and asked to look, by the main thread."""

    def __init__(
        self, plan: Plan, log: Log, reporter: ReportWriter, progress: ProgressReader, wake: Wake
    ) -> None:
        self._plan, self._log, self._reporter, self._progress = plan, log, reporter, progress
        self._stall: StallRule = plan.get("stall") or {"seconds": 0, "first": 0, "looks": 0}
        self._pids: Find = set
        self._watch = PatternWatch(plan.get("watch"), log.note, wake.up)
        self._idle = Idle(self._watch, progress, lambda: self._pids())
        self._collected = False
        self.has_stalled = False  #: at any time
        self.stacks: List[str] = []  #: of the present stall
        self.hear = self._watch.hear
        self.vitals = self._idle.vitals

    def follow(self, pids: Find, path: str) -> None:
        """The program has started. `pids` finds its processes, `path` says where programs are."""
        self._pids, self._path = pids, path

    def look(self) -> None:
        """Process what the program did since the last call."""
        self._watch.look()
        self._progress.read_output(self._watch.take_steps(), self._watch.first_step)
        self._look_for_stall()

    def _look_for_stall(self) -> None:
        self._idle.look()
        if not self._idle.stalled(self._stall, min(EARLY, self._stall["seconds"] / 5)):
            if self._collected:
                self._collected = False
                self.stacks = []
                self._log.note("it makes progress again")
                self._reporter.update({}, b"")
        elif not self._collected:
            self._collected = True
            threading.Thread(target=self._collect, name="stacks", daemon=True).start()
        elif self._idle.stalled(self._stall):
            self.has_stalled = True

    def nonfinite(self) -> Optional[VerdictDocument]:
        """Return the verdict of `watch.nonfinite`; None: no line matched."""
        if self._watch.nonfinite is None:
            return None
        line, step = self._watch.nonfinite
        known = self._progress.facts.get("step") if step is None else step
        host, text = self._plan["host"], line[:MAX_VERDICT_TEXT]
        return VerdictDocument(step=known, host=host, device="", blame="", text=text)

    def _collect(self) -> None:
        self._log.note("no progress for %.0f s; its processes:" % self._idle.idle())
        dumps = self._progress.signs > 0
        stacks = collect(self._pids(), dumps, self._log, self._path)
        for line in stacks:
            self._log.note(line, "[stack] ")
        if self._collected:  # it still lasts
            self.stacks = stacks
            self._reporter.update({}, first_lines(stacks))


# How long the program has shown no sign of progress ------------------------------------------------------------------


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
        if sign != self._sign or (sign[0] == "lines" and self._effort.made()):
            self._sign, self._since, self._looks = sign, now, 0
        else:
            self._looks += 1

    def idle(self) -> float:
        """Seconds without a sign."""
        return max(0.0, time.monotonic() - self._since) if self._looks else 0.0

    def vitals(self) -> ReportDocument:
        """Return the facts for the report."""
        return {"idle": round(self.idle(), 1), "looks": self._looks}

    def stalled(self, rule: StallRule, early: float = 0.0) -> bool:
        """Whether nothing was done for as long as the plan's `stall` says, or will have been `early` seconds from
        now. The first step takes longer: compiling is part of it."""
        facts = self._progress.facts
        waits = facts.get("program_phase") and facts.get("step") is None
        limit = rule["first"] if waits else rule["seconds"]
        return bool(limit) and self._looks >= rule["looks"] and self.idle() >= limit - early

    def _newest(self) -> Tuple[str, int]:
        if self._watch.progress:
            return ("matches", self._watch.signs)
        if self._progress.signs:
            return ("events", self._progress.signs)
        return ("lines", self._watch.lines)


class Effort:
    """The CPU time that processes use."""

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


# Notices that this host is about to be taken away, and announced maintenance -----------------------------------------


#: seconds between two questions for announced maintenance, which comes hours to days ahead
UPCOMING_EVERY = 60.0


class Notices:
    """Asks the metadata server for notices, on a thread of its own. `newest` is one of NOTICES."""

    def __init__(self, metadata: MetadataClient, progress: ProgressReader) -> None:
        self._metadata, self._progress = metadata, progress
        self.newest = ""
        self.upcoming: Optional[MaintenanceDocument] = None  #: announced for later; no notice
        self._heard = 0.0  #: monotonic
        self._saved_before: Any = None  #: the step of the newest checkpoint then
        threading.Thread(target=self._watch, name="metadata", daemon=True).start()

    def ask(self) -> None:
        """Ask the metadata server once more, now."""
        self.newest = self.newest or self._metadata.notice() or ""

    def heard(self) -> None:
        """Note that the program gets the notice now."""
        if not self._heard:
            self._heard = time.monotonic()
            self._saved_before = self._progress.facts.get("checkpoint")

    def saved_in(self) -> Optional[float]:
        """Seconds from the first notice to now, if a checkpoint was committed in between; else None."""
        saved, before = self._progress.facts.get("checkpoint"), self._saved_before
        if not self._heard or saved is None or (before is not None and saved <= before):
            return None
        return round(time.monotonic() - self._heard, 1)

    def _watch(self) -> None:
        """Ask once a second while the server answers, rarely while it does not."""
        delay, due = 1.0, 0.0
        while self.newest != PREEMPTED:
            notice = self._metadata.notice()
            if notice is not None and time.monotonic() >= due:
                self.upcoming, due = self._metadata.upcoming(), time.monotonic() + UPCOMING_EVERY
            self.newest = notice or self.newest
            delay = min(delay * 2, 60) if notice is None else 1.0
            time.sleep(delay)
