"""Reads what the program says of itself, and writes the host's report to the bucket."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Callable, Tuple

from tpujob.agent.base import parse_json
from tpujob.agent.ship.redact import Redactor
from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol import ReportDocument
from tpujob.protocol.limits import MAX_METADATA, MAX_METRICS

Vitals = Callable[[], ReportDocument]

LONGEST_EVENT = 64 * 1024  #: bytes


class ProgressReader:
    """How far the program is, from the `events.jsonl` that the contract lets it write."""

    def __init__(self, path: str) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.facts: ReportDocument = {"metrics": {}}
        self.held = False  #: a checkpoint counts once it is confirmed: the bucket gets it later
        self.told: Any = None  #: the newest checkpoint that the program told
        self.signs = 0  #: phases, steps and checkpoints so far

    def look(self) -> bool:
        """Read what is new. Whether a phase, a checkpoint or a resume is among it."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                data = file.read(4 * 1024 * 1024)
        except OSError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_EVENT:
            self._rest = b""
        taken = [self._take(line) for line in lines if line]
        return any(taken)

    def confirm(self, checkpoint: Any) -> bool:
        """The bucket has this checkpoint. Whether that is new."""
        new = checkpoint is not None and checkpoint != self.facts.get("checkpoint")
        if new:
            self.facts["checkpoint"] = checkpoint
        return new

    def _take(self, line: bytes) -> bool:
        event, facts = parse_json(line), self.facts
        kind, step = event.get("kind"), number(event.get("step"))
        if "steps" in event:
            facts["steps"] = number(event["steps"])
        if kind == "step":
            facts.update(step=step, loss=number(event.get("loss")))
        elif kind == "checkpoint":
            self.told = step
            if not self.held:
                facts["checkpoint"] = step
        elif kind == "resume":
            facts["resumed_from"] = step
        elif kind == "phase":
            facts["program_phase"] = str(event.get("name"))[:60]
        elif kind == "metric":
            name, metrics = str(event.get("name"))[:60], facts.get("metrics", {})
            if name in metrics or len(metrics) < MAX_METRICS:
                facts["metrics"] = {**metrics, name: number(event.get("value"))}
        self.signs += kind in ("phase", "step", "checkpoint")
        return kind in ("phase", "checkpoint", "resume", "verdict")


def number(value: Any) -> Any:
    """A number of a size that fits a report, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


class ReportWriter:
    """Keeps the host's report in the bucket up to date: periodically, and soon after each change."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        every: float,
        said: ReportDocument,
        vitals: Vitals,
        redactor: Redactor,
    ) -> None:
        """`said`: the first report. `vitals`: facts that change all the time; asked for when a report is written.
        What `redactor` knows is in no report."""
        self._vitals, self._redactor = vitals, redactor
        self._storage, self._path, self._every = storage, path, max(1.0, every)
        self._said: ReportDocument = {**said}
        self._change = threading.Condition()
        self._urgent, self._last, self._hurry = True, False, False
        self._body = b""
        self._kept: Tuple[ReportDocument, bytes] = ({}, b"")  #: the newest object
        self._written = threading.Event()
        threading.Thread(target=self._write, name="report", daemon=True).start()

    def update(self, facts: ReportDocument, urgent: bool = False) -> None:
        with self._change:
            before = (self._said.get("phase"), self._said.get("notice"))
            self._said.update(facts)
            if urgent or before != (self._said.get("phase"), self._said.get("notice")):
                self._urgent = True
                self._change.notify_all()

    def attach(self, body: bytes) -> None:
        """Put lines into the report, and write it soon."""
        with self._change:
            self._body, self._urgent = body, True
            self._change.notify_all()

    def hurry(self, facts: ReportDocument, body: bytes) -> None:
        """A report at once, however young the one before is: this host may be gone in a moment."""
        with self._change:
            self._said.update(facts)
            self._body, self._urgent, self._hurry = body, True, True
            self._change.notify_all()

    def finish(self, facts: ReportDocument, body: bytes, patience: float) -> bool:
        """The last report; whether it was written in time."""
        with self._change:
            self._said.update(facts)
            self._body, self._last = body, True
            self._change.notify_all()
        return self._written.wait(patience)

    def _write(self) -> None:
        delay = 1.0
        while True:
            with self._change:
                self._change.wait_for(lambda: self._urgent or self._last, timeout=self._every)
                last, self._urgent = self._last, False
                text, body = self._text(), self._body
                written: Tuple[ReportDocument, bytes] = ({**self._said}, body)
            try:
                if not last or written != self._kept:  # the same again would only look younger
                    self._storage.put(self._path, self._redactor.redact(body), {"report": text})
                self._kept, delay = written, 1.0
                if last:
                    return self._written.set()
            except StorageError:
                delay = min(delay * 2, 10)
                with self._change:
                    self._urgent = True
            with self._change:  # one object takes one write a second
                self._change.wait_for(lambda: self._hurry, timeout=delay)
                self._hurry = False

    def _text(self) -> str:
        said: ReportDocument = {**self._said, "at": round(time.time(), 3), **self._vitals()}
        text = json.dumps(said, separators=(",", ":"))
        if len(text) > MAX_METADATA:
            text = json.dumps({**said, "metrics": {}}, separators=(",", ":"))
        return self._redactor.redact_text(text)
