"""What the steps of one attempt share: its plan and folders, its record, what it tells, and what it is told.

What it goes through is in `daemon.py`; the other attempts that this host knows of are in `attempts.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any, Callable, List, Optional

from tpujob.agent.base import Record, Stopped, attempt_path, read_json, write_json
from tpujob.agent.setup.compiled import Compiled
from tpujob.agent.setup.runtimes import Bare
from tpujob.agent.ship.log import Log
from tpujob.agent.ship.reports import Progress, Reporter
from tpujob.agent.storage import Metadata, Storage
from tpujob.agent.wake import Wake
from tpujob.agent.watch.notices import Notices
from tpujob.agent.watch.supervision import Supervision
from workloads.contract import EVENTS

#: what a report takes from a state
SAID = (
    "job", "attempt", "phase", "exit_code", "error", "cause", "notice", "physical", "saved_in", "verdict", "versions",
)  # fmt: skip
#: those that a daemon hears; SIGCHLD only wakes it, the last two are no reason to end
SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


class Attempt:
    """One attempt on this host. Its methods are for the main thread."""

    def __init__(self, plan: Record, folder: str) -> None:
        """Signals are heard from now on."""
        self.plan, self.folder = plan, folder
        self.out, self.work = os.path.join(folder, "out"), os.path.join(folder, "work")
        self.state: Record = {"job": plan["job"], "attempt": plan["attempt"], "pid": os.getpid()}
        self.state.update(phase="fetching", exit_code=None, error="", cause=None, notice="")
        self.state.update(program=False, stopped=False, physical="", saved_in=None, verdict=None)
        self.state["versions"] = {}
        self.grace: Optional[float] = None  #: set when `stop` has been called
        self.warned = False  #: SIGTERM came, or a notice
        self._called = False  #: `stop` has knocked
        self.host_lock: Optional[int] = None
        self.place = Bare()  #: what set-up, the check and the program run in
        self.keeping: Optional[threading.Thread] = None  #: while the environment goes to the bucket
        self.compiled: Optional[Compiled] = None  #: the programs that were compiled before
        self.supervision: Optional[Supervision] = None  #: while the program runs, and after
        self.wake = Wake()
        for each in SIGNALS:
            signal.signal(each, self._on_signal)

    def open(self) -> None:
        """From now on the log and the report go to the bucket, and notices are heard."""
        self.metadata = Metadata()
        self.storage = Storage(self.metadata)
        where, host = attempt_path(self.plan), self.plan["host"]
        self.shipped_to = "%s/host-%d" % (where, host)
        spool = os.path.join(self.folder, "spool")
        self.log = Log(self.storage, self.shipped_to + "/log-", spool, self.plan["log_bytes"])
        base = dict({"v": 1, "host": host}, **self.said())
        report = "%s/reports/host-%d" % (where, host)
        every = self.plan["report_every"]
        self.reporter = Reporter(self.storage, report, every, base, self._vitals)
        self.progress = Progress(os.path.join(self.out, EVENTS))
        self.notices = Notices(self.metadata, self.progress)

    # What it tells

    def save(self) -> None:
        """Raises OSError."""
        write_json(os.path.join(self.folder, "state.json"), self.state)

    def save_if_possible(self) -> None:
        """A full disk ends no program, and does not keep its end from being told."""
        with contextlib.suppress(OSError):
            self.save()

    def phase(self, phase: str, said: bool = True) -> None:
        self.state["phase"] = phase
        self.save_if_possible()
        if said:
            self.reporter.update({"phase": phase})

    def said(self) -> Record:
        """The record's part of a report."""
        return {key: self.state[key] for key in SAID}

    def _vitals(self) -> Record:
        running = self.supervision is not None and self.state["phase"] != "exited"
        return self.supervision.vitals() if self.supervision and running else {}

    # What it is told

    def told(self) -> bool:
        """Whether it is to end: by `stop`, by a notice, by SIGTERM."""
        return self.grace is not None or self.warned

    def listen(self) -> None:
        """Take in what was said to this daemon, and by the program."""
        if self.grace is None:
            asked = read_json(os.path.join(self.folder, "stop.json"))
            if asked or self._called:  # on a full disk `stop` cannot leave word
                grace = asked.get("grace", self.plan["grace"])
                self.grace, self.state["stopped"] = float(grace), True
        urgent = self.progress.look()
        self._hear_notice()
        if self.supervision is not None:
            self.supervision.look()
        self.reporter.update(self.progress.facts, urgent)

    def _hear_notice(self) -> None:
        notice = self.notices.said
        if notice and self.state["notice"] != notice:
            self.notices.heard()
            self.state["notice"], self.warned = notice, True
            self.reporter.update({"notice": notice})
        if self.state["saved_in"] is None and self.notices.saved_in() is not None:
            self.state["saved_in"] = took = self.notices.saved_in()
            step = self.progress.facts.get("checkpoint")
            self.log.note("step %s was saved %.1f s after the notice" % (step, took))
            self.reporter.update({"saved_in": took}, urgent=True)

    def aside(self, work: Callable[[], Any], whole: bool = False) -> Any:
        """What `work` returns. It runs beside, so that a word to stop is heard; it is abandoned then, unless it must
        be done `whole`: what signals processes must not go on after this attempt. Raises Stopped."""
        outcome: List[Any] = []

        def do() -> None:
            try:
                outcome[:] = [work(), None]
            except Exception as error:
                outcome[:] = [None, error]

        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        while thread.is_alive():
            self.wake.wait(0.05)
            self.listen()
            if not whole:
                self.go_on()
        if outcome[1] is not None:
            raise outcome[1]
        self.go_on()
        return outcome[0]

    def go_on(self) -> None:
        """Raises Stopped once it was told to end."""
        if self.told():
            raise Stopped

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self.warned = True
        elif number == signal.SIGUSR1:
            self._called = True
