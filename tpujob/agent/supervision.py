"""Supervises the running program: progress, stacks of a hang, patterns in the output; polls for preemption notices.

The agent only reports; the backend decides.
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
from tpujob.agent.scalars import ScalarFiles
from tpujob.agent.stack_traces import collect_stacks
from tpujob.agent.upload import FoundReader, Log, ProgressReader, ReportWriter, first_lines
from tpujob.lib.threads import start_loop
from tpujob.protocol import (
    PREEMPTED,
    MaintenanceDocument,
    Plan,
    ReportDocument,
    StallRule,
    VerdictDocument,
)
from tpujob.protocol.limits import MAX_VERDICT_TEXT

#: seconds before the limit at which stacks are collected, so that the backend has them when it acts on the limit
EARLY = 5.0


class Supervision:
    """The supervision of a running program. Only the main thread may create and poll it."""

    def __init__(
        self,
        plan: Plan,
        log: Log,
        reporter: ReportWriter,
        progress: ProgressReader,
        wake: Wake,
        folder: str,
        since: float,
    ) -> None:
        """`folder` is the program's, `since` the time of its start."""
        self._plan, self._log, self._reporter, self._progress = plan, log, reporter, progress
        self._stall: StallRule = plan.get("stall") or {"seconds": 0, "first": 0, "looks": 0}
        self._pids: Find = set
        self._watch = PatternWatch(plan.get("watch"), log.note, wake.up)
        #: why the program must be killed: its numbers are not finite
        self.verdict: Optional[VerdictDocument] = None
        self._idle = IdleClock(self._watch, progress, lambda: self._pids())
        self._found = FoundReader(progress)
        self._scalars = ScalarFiles(folder, since, log.note)
        self._found_names: Set[str] = set()  #: that a note has named
        self._collected = False
        self.has_stalled = False  #: at any time
        self.stacks: List[str] = []  #: the stacks of the present stall
        self.add_lines = self._watch.add_lines
        self.vitals = self._idle.vitals

    def follow(self, pids: Find, path: str) -> None:
        """Supervise the processes that `pids` returns. `path` is the program's PATH."""
        self._pids, self._path = pids, path

    def poll(self) -> None:
        """Process the program's output, events and idle time since the last call."""
        self._watch.search()
        self._progress.read_output(self._watch.take_matches(), self._watch.first_step)
        self._show_found()
        self.verdict = self.verdict or self._match() or self._count_losses()
        self._check_stall()

    def _check_stall(self) -> None:
        self._idle.poll()
        if not self._idle.stalled(self._stall, min(EARLY, self._stall["seconds"] / 5)):
            if self._collected:
                self._collected = False
                self.stacks = []
                self._log.note("it makes progress again")
                self._reporter.update({}, b"")
        elif not self._collected:
            self._collected = True
            threading.Thread(target=self._collect_stacks, name="stacks", daemon=True).start()
        elif self._idle.stalled(self._stall):
            self.has_stalled = True

    def _show_found(self) -> None:
        """Report what was found in common forms and in files, and note it once. Once the program or its patterns report
        steps, nothing is searched for any more."""
        if self._watch.found is None:
            return
        if self._progress.reports_steps:
            self._watch.found = None
            self._found.end()
            return
        output = self._watch.found.document()
        self._found.read(output, self._scalars.look())
        names = [n for n in ("step", "steps", "loss") if output and output.get(n) is not None]
        if not self._found_names.issuperset(names):
            self._found_names.update(names)
            text = "found in the output: %s; it is only shown (`watch: off` ends the search)"
            self._log.note(text % ", ".join(names))

    def _match(self) -> Optional[VerdictDocument]:
        """Return the verdict of `watch.nonfinite`; None: no line matched."""
        if self._watch.nonfinite is None:
            return None
        line, matched_step = self._watch.nonfinite
        step = self._progress.facts.get("step") if matched_step is None else matched_step
        self._progress.note_nonfinite("not finite", step)
        return self._verdict_on(step, line[:MAX_VERDICT_TEXT])

    def _count_losses(self) -> Optional[VerdictDocument]:
        """Return the verdict on the reported losses; None: they are finite, or not for long enough."""
        limit, steps = self._plan.get("nonfinite_steps", 0), self._progress.nonfinite_steps
        bad = self._progress.facts.get("nonfinite")
        if not bad or not limit or steps < limit:
            return None
        text = "the loss is %s since step %s, in %d reported steps"
        return self._verdict_on(bad["since"], text % (bad["loss"], bad["since"], steps))

    def _verdict_on(self, step: Any, text: str) -> VerdictDocument:
        return VerdictDocument(step=step, host=self._plan["host"], device="", blame="", text=text)

    def _collect_stacks(self) -> None:
        self._log.note("no progress for %.0f s; its processes:" % self._idle.seconds())
        dumps = self._progress.signs > 0
        stacks = collect_stacks(self._pids(), dumps, self._log, self._path)
        for line in stacks:
            self._log.note(line, "[stack] ")
        if self._collected:  # the stall lasts
            self.stacks = stacks
            self._reporter.update({}, first_lines(stacks))


# Idle time -----------------------------------------------------------------------------------------------------------


EVERY = 1.0  #: least seconds between two polls
BUSY = 0.01  #: share of one core: a program that uses less is idle
CENSUS = 10.0  #: seconds for which the list of processes is used


class IdleClock:
    """The time since the program's last sign of progress. A sign is a line that matches `watch.progress`; without that
    pattern an event of the contract; without events any output, or CPU time."""

    def __init__(self, watch: PatternWatch, progress: ProgressReader, find: Find) -> None:
        """`find` returns the program's processes."""
        self._watch, self._progress, self._cpu = watch, progress, CpuMeter(find)
        self._since = self._polled_at = time.monotonic()
        self._polls = 0  #: since the newest sign
        self._sign = self._count_signs()

    def poll(self) -> None:
        """Check for a new sign, at most once a second."""
        now = time.monotonic()
        if now - self._polled_at < EVERY * 0.9:
            return
        self._polled_at = now
        sign = self._count_signs()
        if sign != self._sign or (sign[0] == "lines" and self._cpu.was_busy()):
            self._sign, self._since = sign, now
            self._polls = 0
        else:
            self._polls += 1

    def seconds(self) -> float:
        """Return the seconds since the newest sign."""
        return max(0.0, time.monotonic() - self._since) if self._polls else 0.0

    def vitals(self) -> ReportDocument:
        """Return the facts for the report."""
        return {"idle": round(self.seconds(), 1), "looks": self._polls}

    def stalled(self, rule: StallRule, early: float = 0.0) -> bool:
        """Return whether the plan's limits for a stall are exceeded, or will be in `early` seconds. A program that
        reports phases has a higher limit before its first step, as it compiles then."""
        facts = self._progress.facts
        before_first_step = facts.get("program_phase") and facts.get("step") is None
        limit = rule["first"] if before_first_step else rule["seconds"]
        return bool(limit) and self._polls >= rule["looks"] and self.seconds() >= limit - early

    def _count_signs(self) -> Tuple[str, int]:
        """Return the kind of signs that the program shows, and their number."""
        if self._watch.has_progress_pattern:
            return ("matches", self._watch.signs)
        if self._progress.signs:
            return ("events", self._progress.signs)
        return ("lines", self._watch.lines)


class CpuMeter:
    """The CPU time of processes."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._pids: Set[int] = set()
        self._ticks: Dict[int, int] = {}  #: at the last call, by pid
        self._listed_at = -CENSUS
        self._called_at = time.monotonic()

    def was_busy(self) -> bool:
        """Return whether the processes used at least BUSY since the last call."""
        now = time.monotonic()
        if now - self._listed_at >= CENSUS:
            self._pids, self._listed_at = self._find(), now
        ticks = {pid: _cpu_ticks(pid) for pid in self._pids}
        spent = sum(max(0, count - self._ticks.get(pid, 0)) for pid, count in ticks.items())
        elapsed = now - self._called_at
        self._called_at, self._ticks = now, ticks
        return spent / os.sysconf("SC_CLK_TCK") >= BUSY * elapsed


def _cpu_ticks(pid: int) -> int:
    """Return the CPU time of the process and of its ended children, in clock ticks; 0: it has ended."""
    fields = read_proc(pid, "stat").rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])) if len(fields) > 14 else 0


# Notices -------------------------------------------------------------------------------------------------------------


UPCOMING_EVERY = 60.0  #: seconds between two polls for announced maintenance, hours to days ahead


class Notices:
    """The notices that this host is about to be taken away, and announced maintenance. A thread polls the metadata
    server; `newest` is one of NOTICES."""

    def __init__(self, metadata: MetadataClient, progress: ProgressReader) -> None:
        self._metadata, self._progress = metadata, progress
        self.newest = ""
        self.upcoming: Optional[MaintenanceDocument] = None  #: announced for later; not a notice
        self._passed_on_at = 0.0  #: monotonic; 0: no notice yet
        self._step_before: Any = None  #: the step of the newest checkpoint at that time
        start_loop("metadata", self._poll_forever)

    def poll(self) -> None:
        """Poll the metadata server now."""
        self.newest = self.newest or self._metadata.notice() or ""

    def mark_passed_on(self) -> None:
        """Record that the program gets the notice now."""
        if not self._passed_on_at:
            self._passed_on_at = time.monotonic()
            self._step_before = self._progress.facts.get("checkpoint")

    def saved_in(self) -> Optional[float]:
        """Return the seconds since the first notice, or None if no checkpoint was committed since then."""
        step, before = self._progress.facts.get("checkpoint"), self._step_before
        if not self._passed_on_at or step is None or (before is not None and step <= before):
            return None
        return round(time.monotonic() - self._passed_on_at, 1)

    def _poll_forever(self) -> None:
        """Poll once a second while the server answers, less often while it does not."""
        delay, due = 1.0, 0.0
        while self.newest != PREEMPTED:
            notice = self._metadata.notice()
            if notice is not None and time.monotonic() >= due:
                self.upcoming = self._metadata.upcoming()
                due = time.monotonic() + UPCOMING_EVERY
            self.newest = notice or self.newest
            delay = min(delay * 2, 60) if notice is None else 1.0
            time.sleep(delay)
