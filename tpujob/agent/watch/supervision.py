"""The eye on the program while it runs: whether it goes on, what it is doing when it does not, what its output says."""

from __future__ import annotations

import threading
from typing import Callable, List, Optional, Set

from tpujob.agent.base import Record
from tpujob.agent.ship.evidence import first_lines
from tpujob.agent.ship.log import Log
from tpujob.agent.ship.reports import Progress, Reporter
from tpujob.agent.watch.idle import Idle
from tpujob.agent.watch.patterns import Watch
from tpujob.agent.watch.stacks import collect

EARLY = 5.0  #: seconds before the limit at which stacks are collected: whoever acts on the limit finds them


class Supervision:
    """From the start of the program to its end. Made, and asked to look, by the main thread."""

    def __init__(
        self,
        plan: Record,
        log: Log,
        reporter: Reporter,
        progress: Progress,
        wake: Callable[[], None],
    ) -> None:
        self._plan, self._log, self._reporter, self._progress = plan, log, reporter, progress
        self._stall: Record = plan.get("stall") or {"seconds": 0, "first": 0, "looks": 0}
        self._pids: Callable[[], Set[int]] = set
        self._watch = Watch(plan.get("watch") or {}, log.note, wake)
        self._idle = Idle(self._watch, progress, lambda: self._pids())
        self._collected = self._told = False
        self.has_stalled = False  #: at any time
        self.stacks: List[str] = []  #: of the stall that lasts
        self.hear = self._watch.hear
        self.vitals = self._idle.vitals

    def follow(self, pids: Callable[[], Set[int]], path: str) -> None:
        """The program has started. `pids` finds its processes, `path` says where programs are."""
        self._pids, self._path = pids, path

    def look(self) -> None:
        """Take in what the program did since the last look."""
        self._watch.look()
        if self._watch.progress and self._watch.step is not None:
            self._progress.facts["step"] = self._watch.step
        self._idle.look()
        if not self._idle.stalled(self._stall, min(EARLY, self._stall["seconds"] / 5)):
            if self._collected:
                self._recovered()
        elif not self._collected:
            self._collected = True
            threading.Thread(target=self._collect, name="stacks", daemon=True).start()
        elif not self._told and self._idle.stalled(self._stall):
            self._told = self.has_stalled = True
            self._reporter.attach(first_lines(self.stacks))

    def nonfinite(self) -> Optional[Record]:
        """The verdict of `watch.nonfinite`; None: no line matched."""
        if self._watch.nonfinite is None:
            return None
        line, step = self._watch.nonfinite
        known = self._progress.facts.get("step") if step is None else step
        verdict = {"step": known, "host": self._plan["host"], "device": "", "blame": ""}
        return dict(verdict, text=line[:300])

    def _collect(self) -> None:
        self._log.note("no progress for %.0f s; its processes:" % self.vitals()["idle"])
        dumps = self._progress.signs > 0
        stacks = collect(self._pids(), dumps, self._log, self._path)
        for line in stacks:
            self._log.note(line, "[stack] ")
        if self._collected:  # it still lasts
            self.stacks = stacks
            self._reporter.attach(first_lines(stacks))

    def _recovered(self) -> None:
        self._collected = self._told = False
        self.stacks = []
        self._log.note("it goes on")
        self._reporter.attach(b"")
