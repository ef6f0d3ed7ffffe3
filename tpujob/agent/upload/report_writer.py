"""Writes this host's report to the bucket: at once when an important fact changes, otherwise at intervals."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Optional, Tuple, cast

from tpujob.agent.base import Record
from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.upload.redact import Redactor
from tpujob.lib.threads import start_loop
from tpujob.protocol import Phase, Plan, ReportDocument, StallRule, paths
from tpujob.protocol.limits import SAVING
from tpujob.protocol.report import sign_report

LOOK = 5.0  #: most seconds between two polls for changes
GAP = 1.0  #: least seconds between two writes: one object takes one write a second
HURRY = 0.1  #: least seconds between two writes after a notice and the end of the program
SLOWEST = 10.0  #: most seconds between two tries while writes fail
#: fields whose changes are written at once
MATTERS = ("phase", "exit_code", "notice", "error", "verdict", "saved_in")


class ReportSchedule:
    """The times at which a report is written. Pure; times are monotonic."""

    def __init__(self, every: float, stall: Optional[StallRule], gap: float = GAP) -> None:
        """`every`: seconds between two writes without important changes; `gap`: least seconds between two writes."""
        self._every, self._stall, self._gap = every, stall, gap
        self._written: Tuple[Any, ...] = ()  #: important facts of the newest report in the bucket
        self._written_at = self._retry_at = float("-inf")
        self._delay = gap  #: seconds from a failed write to the next try
        #: the first such loss of the attempt is important; later ones may come and go each second
        self._was_nonfinite = False

    def seconds_left(
        self, report: ReportDocument, evidence: bytes, now: float, *, last: bool = False
    ) -> float:
        """Return the seconds until this report must be written; 0: now."""
        is_over, notice = report.get("phase") == Phase.EXITED, bool(report.get("notice"))
        gap = HURRY if is_over and notice else self._gap
        if not last and self._important_facts(report, evidence) == self._written:
            gap = min(self._every, SAVING) if notice and not is_over else self._every
        return max(0.0, self._written_at + gap - now, self._retry_at - now)

    def note_written(self, report: ReportDocument, evidence: bytes, now: float) -> None:
        self._written = self._important_facts(report, evidence)
        self._written_at = now
        self._delay = self._gap

    def note_failed(self, now: float) -> None:
        self._retry_at = now + self._delay
        self._delay = min(SLOWEST, 2 * self._delay)

    def _important_facts(self, report: ReportDocument, evidence: bytes) -> Tuple[Any, ...]:
        """Return the facts whose changes are written at once."""
        self._was_nonfinite = self._was_nonfinite or report.get("nonfinite") is not None
        facts = (report.get(name) for name in MATTERS)
        return (*facts, self._was_nonfinite, self._is_stalled(report), evidence)

    def _is_stalled(self, report: ReportDocument) -> bool:
        rule = self._stall
        if not rule or not rule["seconds"] or report.get("looks", 0) < rule["looks"]:
            return False
        if report.get("phase") == Phase.EXITED:
            return False
        compiles = report.get("program_phase") and report.get("step") is None
        return (report.get("idle") or 0.0) >= rule["first" if compiles else "seconds"]


class ReportWriter:
    """A thread that keeps the report in the bucket up to date. Any thread may call its methods."""

    def __init__(
        self,
        plan: Plan,
        storage: Storage,
        key: str,
        *,
        first: ReportDocument,
        vitals: Callable[[], ReportDocument],
        curves: Callable[[], bytes] = bytes,
        redactor: Redactor,
        gap: float = GAP,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`first` is the first report; `vitals` returns facts that change all the time. Reports are redacted."""
        self._storage, self._key, self._clock = storage, key, clock
        self._path = paths.report_path(plan["workdir"], plan["attempt"], plan["host"])
        every = max(1.0, plan["report_every"])
        self._look = min(LOOK, every)
        self._schedule = ReportSchedule(every, plan.get("stall"), gap)
        self._number = 0  #: the number of the newest report
        self._vitals, self._curves, self._redactor = vitals, curves, redactor
        self._report: ReportDocument = {**first}
        self._evidence = b""
        self._last = False
        self._change = threading.Condition()
        self._finished = threading.Event()
        start_loop("report", self._run)

    def update(self, facts: ReportDocument, evidence: Optional[bytes] = None) -> None:
        """Add facts to the report, and replace its evidence unless None. Important changes are written at once."""
        with self._change:
            before = [self._report.get(name) for name in MATTERS]
            self._report.update(facts)
            self._evidence = self._evidence if evidence is None else evidence
            if evidence is not None or before != [self._report.get(name) for name in MATTERS]:
                self._change.notify_all()

    def finish(self, facts: ReportDocument, evidence: bytes, patience: float) -> None:
        """Write the last report, and wait up to `patience` seconds until it is in the bucket."""
        with self._change:
            self._last = True
            self.update(facts, evidence)
        self._finished.wait(patience)

    def _run(self) -> None:
        written: Tuple[ReportDocument, bytes] = ({}, b"")
        while True:
            with self._change:
                last, now = self._last, time.monotonic()
                report, evidence, curves = self._compose()
                if last and (report, evidence) == written:
                    return self._finished.set()
                left = self._schedule.seconds_left(report, evidence, now, last=last)
                if left > 0:
                    self._change.wait(min(left, self._look))
                    continue
            if self._write(report, evidence, curves):
                written = (report, evidence)
                self._schedule.note_written(report, evidence, now)
            else:
                self._schedule.note_failed(time.monotonic())

    def _compose(self) -> Tuple[ReportDocument, bytes, bytes]:
        """Return report, evidence and curves, redacted."""
        facts: Record = {**self._report, **self._vitals()}
        # names of fields and numbers stay, even if a secret is equal to one
        report = {name: _redact_texts(value, self._redactor) for name, value in facts.items()}
        redact = self._redactor.redact
        return cast(ReportDocument, report), redact(self._evidence), redact(self._curves())

    def _write(self, report: ReportDocument, evidence: bytes, curves: bytes) -> bool:
        # from the clock, so that numbers grow across restarts of the agent, even without its folder
        self._number = max(self._number + 1, int(self._clock() * 1000))
        numbered: ReportDocument = {**report, "seq": self._number, "at": self._storage.time()}
        metadata, body = sign_report(numbered, self._key, evidence, curves)
        with contextlib.suppress(StorageError):
            self._storage.put(self._path, body, metadata)
            return True
        return False


def _redact_texts(value: Any, redactor: Redactor) -> Any:
    """Return a value of a report with its texts redacted, and the names and values of a record."""
    if isinstance(value, str):
        return redactor.redact_text(value)
    if not isinstance(value, dict):
        return value
    record = cast(Record, value)
    return {
        redactor.redact_text(name): _redact_texts(item, redactor) for name, item in record.items()
    }
