"""The state that the steps of one attempt share: plan, folder, record, log, reports, and requests to stop.

The steps are in `daemon.py`; `attempts.py` lists the other attempts on this host.
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
from tpujob.agent.upload import CompileCache, Log, Outputs, ProgressReader, Redactor, ReportWriter
from tpujob.contract import EVENTS
from tpujob.protocol import Phase, Plan, ReportDocument, limits, paths
from tpujob.protocol.limits import secret_variables

#: the fields of a state that a report repeats
REPORTED_FIELDS = AttemptState.__annotations__.keys() & ReportDocument.__annotations__.keys()
#: the signals that a daemon handles; SIGCHLD only wakes the daemon, SIGHUP and SIGINT are ignored
SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


class HostAttempt:
    """One attempt on this host. Only the main thread may call its methods."""

    def __init__(self, plan: Plan, folder: AttemptFolder, launch: LaunchSecrets) -> None:
        """Install the signal handlers. The keys and secrets of `launch` are never written to a file."""
        self.plan, self.folder, self.secrets = plan, folder, dict(launch.secrets)
        self.key, self.cache_key = launch.key, launch.cache_key
        #: replaces secrets in the output of set-up and of the program
        self.redactor = Redactor(
            {**secret_variables(os.environ), **secret_variables(plan["env"]), **self.secrets}
        )
        self.state: AttemptState = {
            "job": plan["job"], "attempt": plan["attempt"], "pid": os.getpid(), "phase": Phase.FETCHING,
            "exit_code": None, "error": "", "cause": None, "late": False, "unreached": None, "signalled": False,
            "ran": None, "notice": "", "program": False, "launcher": 0, "began": 0.0, "stopped": False, "physical": "",
            "saved_in": None, "verdict": None, "versions": {}, "kernel_kills": 0, "last_error": "",
        }  # fmt: skip
        #: the program of a killed agent runs, or has ended since
        self.takes_over = False
        self.grace: Optional[float] = None  #: seconds to end in, once `stop` was called
        self.ended_at = 0.0  #: when the program ended, or the steps before it failed
        self.warned = False  #: SIGTERM or a notice arrived
        #: a number was not finite, or `stop --discard` was called: kill the program, discard what it writes from now on
        self.discards = False
        self._stop_signalled = False
        self.host_lock: Optional[int] = None
        self.closers: List[Callable[[], None]] = []  #: called once the host is released
        self.runtime = Runtime()  #: the environment of set-up, preflight and program
        self.environment_upload: Optional[threading.Thread] = None
        self.compile_cache: Optional[CompileCache] = None
        self.outputs: Optional[Outputs] = None  #: folders of the program that the bucket keeps
        self.supervision: Optional[Supervision] = None  #: set once the program starts
        self.wake = Wake()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def take_over(self, earlier: AttemptState) -> None:
        """Continue the attempt of a killed agent with its program."""
        self.takes_over = True
        self.state = {**earlier, "pid": os.getpid()}

    def open(self) -> None:
        """Start the uploads of log and report, and the polling for notices."""
        plan = self.plan
        host_key = (plan["workdir"], plan["attempt"], plan["host"])
        self.metadata = MetadataClient()
        self.storage = Storage(self.metadata)
        self.bucket_folder = paths.host_folder(*host_key)
        self.log = Log(
            self.storage,
            lambda n: paths.log_path(*host_key, n),
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

    # Record and reports

    def save(self) -> None:
        """Write the record to disk. Raises OSError."""
        write_json(self.folder.state, self.state)

    def save_if_possible(self) -> None:
        """Save the record unless the disk is full: that must not end the program or hide its end."""
        with contextlib.suppress(OSError):
            self.save()

    def record_failure(self, failure: Failure) -> None:
        """Record why the program was not started."""
        error = self.redactor.redact_text(str(failure))[: limits.MAX_TEXT]
        self.state.update(error=error, cause=failure.cause)
        self.state.update(late=failure.late, unreached=failure.unreached)

    def set_phase(self, phase: Phase, report: bool = True) -> None:
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

    # Requests to stop

    def must_stop(self) -> bool:
        """Return whether `stop`, a notice or SIGTERM requires the attempt to end."""
        return self.grace is not None or self.warned

    def poll(self) -> None:
        """Process a request of `stop`, the program's output and files, and notices since the last call."""
        if self.grace is None:
            request = read_json(self.folder.stop)
            if request or self._stop_signalled:  # on a full disk `stop` cannot write its file
                self.grace = float(request.get("grace", self.plan["grace"]))
                self.state["stopped"] = True
                self.discards = self.discards or request.get("discard") is True
                self.log.flush()
        self.progress.look()
        if self.supervision is not None:
            self.supervision.poll()
        if self.outputs is not None:
            self.outputs.freeze(self.is_nonfinite())
            kept = self.outputs.note_checkpoint(self.progress.newest_checkpoint)
            self.progress.confirm(kept, self.outputs.lacks)
            self.reporter.update({"outputs": self.outputs.facts()})
        self._process_notice()
        self.reporter.update({"maintenance": self.notices.upcoming})
        verdict = self.state["verdict"]
        bad_step = verdict["step"] if verdict else self.progress.nonfinite_since
        facts = self.progress.facts if bad_step is None else self.progress.facts_before(bad_step)
        self.reporter.update(facts)

    def note_nonfinite(self) -> None:
        """Record that the program must be killed, as its numbers are not finite."""
        verdict = self.supervision.verdict if self.supervision else None
        if verdict is not None and not self.state["verdict"]:
            self.discards = True
            self.state.update(verdict=verdict, cause="NONFINITE", error=verdict["text"])
            text = "killing the program, and keeping nothing that it writes from here on: %s"
            self.log.note(text % verdict["text"])
            self.reporter.update({"verdict": verdict})

    def is_nonfinite(self) -> bool:
        """Return whether the program's files may hold non-finite numbers."""
        return self.discards or self.progress.facts.get("nonfinite") is not None

    def _process_notice(self) -> None:
        notice = self.notices.newest
        if notice and self.state["notice"] != notice:
            self.notices.mark_passed_on()
            self.state["notice"] = notice
            self.warned = True
            self.log.flush(soon=True)
            self.reporter.update({"notice": notice})
        seconds = self.notices.saved_in()
        if self.state["saved_in"] is None and seconds is not None:
            self.state["saved_in"] = seconds
            step = self.progress.facts.get("checkpoint")
            self.log.note("step %s was saved %.1f s after the notice" % (step, seconds))
            self.reporter.update({"saved_in": seconds})

    def run_aside(self, work: Callable[[], Any], whole: bool = False) -> Any:
        """Call `work` on another thread and return its result. Raises Stopped once the attempt has to stop: at once, or
        with `whole` after the end of `work`, as code that signals processes must not outlive this attempt."""
        result: List[Any] = []
        errors: List[Exception] = []

        def call() -> None:
            try:
                result.append(work())
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        while thread.is_alive():
            self.wake.wait(0.05)
            self.poll()
            if not whole:
                self.check_stop()
        if errors:
            raise errors[0]
        self.check_stop()
        return result[0]

    def check_stop(self) -> None:
        """Raise Stopped if the attempt has to stop."""
        if self.must_stop():
            raise Stopped

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self.warned = True
        elif number == signal.SIGUSR1:
            self._stop_signalled = True
