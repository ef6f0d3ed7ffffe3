"""Watches the program while it runs: whether it goes on, where it hangs, what its output says."""

from __future__ import annotations

import threading
from typing import List, Optional

from tpujob.agent.base import Wake
from tpujob.agent.processes import Find
from tpujob.agent.upload import Log, ProgressReader, ReportWriter, first_lines
from tpujob.agent.watch.idle import Idle
from tpujob.agent.watch.patterns import PatternWatch
from tpujob.agent.watch.stacks import collect
from tpujob.protocol import Plan, StallRule, VerdictDocument
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
        self._collected = self._attached = False
        self.has_stalled = False  #: at any time
        self.stacks: List[str] = []  #: of the present stall
        self.hear = self._watch.hear
        self.vitals = self._idle.vitals

    def follow(self, pids: Find, path: str) -> None:
        """The program has started. `pids` finds its processes, `path` says where programs are."""
        self._pids, self._path = pids, path

    def look(self) -> None:
        """Take in what the program did since the last look."""
        self._watch.look()
        self._progress.read_output(self._watch.take_steps(), self._watch.first_step)
        self._look_for_stall()

    def _look_for_stall(self) -> None:
        self._idle.look()
        if not self._idle.stalled(self._stall, min(EARLY, self._stall["seconds"] / 5)):
            if self._collected:
                self._recovered()
        elif not self._collected:
            self._collected = True
            threading.Thread(target=self._collect, name="stacks", daemon=True).start()
        elif not self._attached and self._idle.stalled(self._stall):
            self._attached = self.has_stalled = True
            self._reporter.attach(first_lines(self.stacks))

    def nonfinite(self) -> Optional[VerdictDocument]:
        """The verdict of `watch.nonfinite`; None: no line matched."""
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
            self._reporter.attach(first_lines(stacks))

    def _recovered(self) -> None:
        self._collected = self._attached = False
        self.stacks = []
        self._log.note("it goes on")
        self._reporter.attach(b"")
