"""What the steps of one attempt share: its plan and folder, its record, what it reports, and what stops it.

The steps are in `daemon.py`; the other attempts that this host knows of are in `attempts.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any, Callable, List, Optional, cast

from tpujob.agent import live
from tpujob.agent.attempts import AttemptState
from tpujob.agent.base import Failure, LaunchSecrets, Stopped, Wake, read_json, write_json
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.runtimes import Runtime
from tpujob.agent.storage import Storage
from tpujob.agent.supervision import Notices, Supervision
from tpujob.agent.upload import (
    CompileCache,
    Log,
    Outputs,
    ProgressReader,
    Redactor,
    ReportWriter,
)
from tpujob.protocol import Phase, Plan, ReportDocument, limits, paths
from tpujob.protocol.limits import secret_variables
from workloads.contract import EVENTS

#: the fields of a state that a report repeats
REPORTED_FIELDS = AttemptState.__annotations__.keys() & ReportDocument.__annotations__.keys()
#: the signals that a daemon hears; SIGCHLD only wakes it, the last two are no reason to end
SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


class HostAttempt:
    """One attempt on this host. Its methods are for the main thread."""

    def __init__(self, plan: Plan, folder: AttemptFolder, launch: LaunchSecrets) -> None:
        """Handle signals from now on. No file gets what `launch` holds."""
        self.plan, self.folder, self.secrets = plan, folder, dict(launch.secrets)
        self.key, self.cache_key = launch.key, launch.cache_key
        #: replaces secrets in the output of set-up and of the program
        self.redactor = Redactor(
            {**secret_variables(os.environ), **secret_variables(plan["env"]), **self.secrets}
        )
        self.state: AttemptState = {
            "job": plan["job"], "attempt": plan["attempt"], "pid": os.getpid(), "phase": Phase.FETCHING,
            "exit_code": None, "error": "", "cause": None, "late": False, "unreached": None, "signalled": False,
            "ran": None, "notice": "", "program": False, "stopped": False, "physical": "", "saved_in": None,
            "verdict": None, "versions": {},
        }  # fmt: skip
        self.grace: Optional[float] = None  #: seconds to end in, once `stop` was called
        self.warned = False  #: SIGTERM came, or a notice
        #: a number was not finite: the program is killed, and what it writes from now on is not kept
        self.discards = False
        self._stop_signalled = False
        self.host_lock: Optional[int] = None
        self.closers: List[Callable[[], None]] = []  #: called once the host is released
        self.runtime = Runtime()  #: what set-up, the check and the program run in
        self.keeping: Optional[threading.Thread] = None  #: while the environment goes to the bucket
        self.compile_cache: Optional[CompileCache] = None
        self.outputs: Optional[Outputs] = None  #: folders of the program that the bucket keeps
        self.supervision: Optional[Supervision] = None  #: while the program runs, and after
        self.wake = Wake()
        for each in SIGNALS:
            signal.signal(each, self._on_signal)

    def open(self) -> None:
        """Connect log, report and notices: from now on log and report go to the bucket, and notices are heard."""
        plan = self.plan
        where = (plan["workdir"], plan["attempt"], plan["host"])
        self.metadata = MetadataClient()
        self.storage = Storage(self.metadata)
        self.shipped_to = paths.host_folder(*where)
        self.log = Log(
            self.storage,
            lambda n: paths.log_path(*where, n),
            self.folder.begun,
            plan["log_bytes"],
            self.redactor,
            min(limits.LOG_EVERY, limits.LOG_PER_REPORT * plan["report_every"]),
        )
        live.serve(self.folder, plan["host"], self.log)
        self.progress = ProgressReader(os.path.join(self.folder.out, EVENTS))
        self.reporter = ReportWriter(
            plan,
            self.storage,
            self.key,
            first={"v": 1, "host": plan["host"], **self.reported_state()},
            vitals=self._vitals,
            curves=self.progress.series.line,
            redactor=self.redactor,
        )
        self.notices = Notices(self.metadata, self.progress)

    # What it reports

    def save(self) -> None:
        """Raises OSError."""
        write_json(self.folder.state, self.state)

    def save_if_possible(self) -> None:
        """Save the record; a full disk neither ends the program nor keeps its end from being reported."""
        with contextlib.suppress(OSError):
            self.save()

    def fail(self, failure: Failure) -> None:
        """Note why the program was not started."""
        error = self.redactor.redact_text(str(failure))[: limits.MAX_TEXT]
        self.state.update(error=error, cause=failure.cause)
        self.state.update(late=failure.late, unreached=failure.unreached)

    def phase(self, phase: Phase, report: bool = True) -> None:
        self.state["phase"] = phase
        self.save_if_possible()
        if report:
            self.reporter.update({"phase": phase})

    def reported_state(self) -> ReportDocument:
        """Return the fields of a report that repeat the record."""
        return cast(ReportDocument, {key: self.state[key] for key in REPORTED_FIELDS})

    def _vitals(self) -> ReportDocument:
        running = self.state["phase"] != Phase.EXITED
        return self.supervision.vitals() if self.supervision and running else {}

    # What stops it

    def must_stop(self) -> bool:
        """Return whether `stop`, a notice or SIGTERM asked the attempt to end."""
        return self.grace is not None or self.warned

    def listen(self) -> None:
        """Read what `stop`, the metadata server and the program have written since the last call."""
        if self.grace is None:
            asked = read_json(self.folder.stop)
            if asked or self._stop_signalled:  # on a full disk `stop` cannot write its file
                grace = asked.get("grace", self.plan["grace"])
                self.grace, self.state["stopped"] = float(grace), True
                self.discards = self.discards or asked.get("discard") is True
                self.log.ship()
        self.progress.look()
        if self.supervision is not None:
            self.supervision.look()
        if self.outputs is not None:
            self.outputs.freeze(self.is_nonfinite())
            self.progress.confirm(self.outputs.note_checkpoint(self.progress.newest_checkpoint))
        self._hear_notice()
        self.reporter.update({"maintenance": self.notices.upcoming})
        bad = (self.state["verdict"] or {}).get("step")
        facts = self.progress.facts if bad is None else self.progress.facts_before(bad)
        self.reporter.update(facts)

    def note_nonfinite(self) -> None:
        """If the program's output says that a number was not finite, note it."""
        verdict = self.supervision.nonfinite() if self.supervision else None
        if verdict is not None and not self.state["verdict"]:
            self.discards = True
            self.state.update(verdict=verdict, cause="NONFINITE", error=verdict["text"])
            self.log.note(
                "watch.nonfinite matches this output: killing the program; what it writes from here on is not kept"
            )
            self.reporter.update({"verdict": verdict})

    def is_nonfinite(self) -> bool:
        """Whether what the program writes now comes from numbers that are not finite. One that ends with 0 by itself
        says that all is well."""
        if self.discards or self.state["exit_code"] == 0:
            return self.discards
        seen = self.supervision.nonfinite() if self.supervision else None
        return self.progress.nonfinite or seen is not None

    def _hear_notice(self) -> None:
        notice = self.notices.newest
        if notice and self.state["notice"] != notice:
            self.notices.heard()
            self.state["notice"], self.warned = notice, True
            self.log.ship(doomed=True)
            self.reporter.update({"notice": notice})
        if self.state["saved_in"] is None and self.notices.saved_in() is not None:
            self.state["saved_in"] = took = self.notices.saved_in()
            step = self.progress.facts.get("checkpoint")
            self.log.note("step %s was saved %.1f s after the notice" % (step, took))
            self.reporter.update({"saved_in": took})

    def aside(self, work: Callable[[], Any], whole: bool = False) -> Any:
        """Call `work` on another thread and return its result. Raise Stopped when the attempt has to stop: at once, or
        with `whole` after `work` has ended, as what signals processes must not outlive this attempt."""
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
                self.check_stop()
        if outcome[1] is not None:
            raise outcome[1]
        self.check_stop()
        return outcome[0]

    def check_stop(self) -> None:
        """Raise Stopped if the attempt has to stop."""
        if self.must_stop():
            raise Stopped

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self.warned = True
        elif number == signal.SIGUSR1:
            self._stop_signalled = True
