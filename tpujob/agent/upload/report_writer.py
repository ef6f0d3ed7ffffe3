"""Writes this host's report into the bucket: at once when something happens that matters, else from time to time."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any, Callable, Optional, Tuple, cast

from tpujob.agent.base import parse_json
from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.upload.redact import Redactor
from tpujob.protocol import Phase, Plan, ReportDocument, StallRule, paths
from tpujob.protocol.limits import SAVING
from tpujob.protocol.report import sign_report

LOOK = 5.0  #: seconds, at most, between two looks at what has changed
GAP = 1.0  #: seconds, at least, between two writes: one object takes one a second
HURRY = 0.1  #: the same once the program has ended on a host that is about to be taken away
SLOWEST = 10.0  #: seconds, at most, between two tries while the storage refuses
#: what is written at once when it changes
MATTERS = ("phase", "exit_code", "notice", "error", "verdict", "saved_in")


class ReportSchedule:
    """Decides when a report is written. Pure: times are of a clock that never goes back."""

    def __init__(self, every: float, stall: Optional[StallRule]) -> None:
        """`every`: seconds between two writes while nothing happens."""
        self._every, self._stall = every, stall
        self._written: Tuple[Any, ...] = ()  #: what mattered in the newest report in the bucket
        self._written_at = self._again_at = float("-inf")
        self._delay = GAP  #: after a write that fails

    def seconds_left(
        self, report: ReportDocument, evidence: bytes, now: float, *, last: bool = False
    ) -> float:
        """Return the seconds until this report is to be written; 0: now."""
        over, notice = report.get("phase") == Phase.EXITED, bool(report.get("notice"))
        gap = HURRY if over and notice else GAP
        if not last and self._what_matters(report, evidence) == self._written:
            gap = min(self._every, SAVING) if notice and not over else self._every
        return max(0.0, self._written_at + gap - now, self._again_at - now)

    def note_written(self, report: ReportDocument, evidence: bytes, now: float) -> None:
        """This report is in the bucket since then."""
        self._written, self._written_at = self._what_matters(report, evidence), now
        self._delay = GAP

    def note_failed(self, now: float) -> None:
        self._again_at, self._delay = now + self._delay, min(SLOWEST, 2 * self._delay)

    def _what_matters(self, report: ReportDocument, evidence: bytes) -> Tuple[Any, ...]:
        """Return what is written at once when it changes."""
        return (*(report.get(name) for name in MATTERS), self._stalls(report), evidence)

    def _stalls(self, report: ReportDocument) -> bool:
        """Return whether the program is past its stall rule."""
        rule = self._stall
        if not rule or not rule["seconds"] or report.get("looks", 0) < rule["looks"]:
            return False
        if report.get("phase") == Phase.EXITED:
            return False
        compiles = report.get("program_phase") and report.get("step") is None
        return (report.get("idle") or 0.0) >= rule["first" if compiles else "seconds"]


class ReportWriter:
    """Keeps the report in the bucket up to date, on a thread of its own. Any thread may call its methods."""

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
    ) -> None:
        """`first`: the first report. `vitals` returns facts that change all the time. What `redactor` knows is in no
        report."""
        self._storage, self._key = storage, key
        self._path = paths.report_path(plan["workdir"], plan["attempt"], plan["host"])
        every = max(1.0, plan["report_every"])
        self._look = min(LOOK, every)
        self._schedule = ReportSchedule(every, plan.get("stall"))
        self._number = 0  #: of the newest report
        self._vitals, self._curves, self._redactor = vitals, curves, redactor
        self._report: ReportDocument = {**first}
        self._evidence, self._last = b"", False
        self._change = threading.Condition()
        self._finished = threading.Event()
        threading.Thread(target=self._run, name="report", daemon=True).start()

    def update(self, facts: ReportDocument, evidence: Optional[bytes] = None) -> None:
        """Report these facts, and these lines as evidence, from now on; at once if they matter."""
        with self._change:
            before = [self._report.get(name) for name in MATTERS]
            self._report.update(facts)
            self._evidence = self._evidence if evidence is None else evidence
            if evidence is not None or before != [self._report.get(name) for name in MATTERS]:
                self._change.notify_all()

    def finish(self, facts: ReportDocument, evidence: bytes, patience: float) -> bool:
        """Write the last report. Return whether it is in the bucket in time."""
        with self._change:
            self._last = True
            self.update(facts, evidence)
        return self._finished.wait(patience)

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
        """Return the report, the evidence and the curves, without secrets."""
        text = json.dumps({**self._report, **self._vitals()})
        report = parse_json(self._redactor.redact_text(text).encode())
        redact = self._redactor.redact
        return cast(ReportDocument, report), redact(self._evidence), redact(self._curves())

    def _write(self, report: ReportDocument, evidence: bytes, curves: bytes) -> bool:
        # by the clock, so that an agent that is started again goes on, also where its folder was lost
        self._number = max(self._number + 1, int(time.time() * 1000))
        numbered: ReportDocument = {**report, "seq": self._number, "at": self._storage.time()}
        metadata, body = sign_report(numbered, self._key, evidence, curves)
        with contextlib.suppress(StorageError):
            self._storage.put(self._path, body, metadata)
            return True
        return False
