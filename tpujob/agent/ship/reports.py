"""Reads what the program says of itself, and puts the host's report together."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple, cast

from tpujob.agent.base import parse_json
from tpujob.agent.ship.redact import Redactor
from tpujob.agent.ship.series import Series
from tpujob.agent.storage import StorageError
from tpujob.protocol import ReportDocument
from tpujob.protocol.limits import MAX_METRICS

Vitals = Callable[[], ReportDocument]
#: takes a report, the evidence, curves, and whether it is the last one, which is in the bucket when it returns; raises
#: StorageError when it is not
Put = Callable[[ReportDocument, bytes, bytes, bool], None]

LONGEST_EVENT = 64 * 1024  #: bytes
KEPT = 200  #: checkpoints, counted from the newest, among which one before a bad step is looked for


class ProgressReader:
    """How far the program is, from the `events.jsonl` that the contract lets it write."""

    def __init__(self, path: str) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.facts: ReportDocument = {"metrics": {}}
        self.held = False  #: a checkpoint counts once it is confirmed: the bucket gets it later
        self.told: Any = None  #: the newest checkpoint that the program told
        self._kept: Deque[Any] = deque(maxlen=KEPT)
        self.nonfinite = False  #: the newest loss that the program reported was not finite
        self.signs = 0  #: phases, steps and checkpoints so far
        self.series = Series()  #: how the numbers of its steps went

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
            self._keep(checkpoint)
        return new

    def facts_before(self, step: Any) -> ReportDocument:
        """Its facts, but of its checkpoints the newest before this step, as what was saved since may hold wrong
        numbers."""
        sound = [kept for kept in self._kept if kept < step]
        return {**self.facts, "checkpoint": sound[-1] if sound else None}

    def read_output(self, steps: Dict[str, int], first_step: Optional[int]) -> bool:
        """Take the steps that patterns found in its output, by the name of the pattern. Whether a checkpoint or a
        resume is new."""
        step, before = steps.get("progress"), (self.told, self.facts.get("resumed_from"))
        if step is not None and step != self.facts.get("step"):
            self._step(step, first_step)
            self.series.step(step, time.time(), {})
        if "checkpoint" in steps:
            self._checkpoint(steps["checkpoint"])
        if "resume" in steps:
            self.facts["resumed_from"] = steps["resume"]
        return before != (self.told, self.facts.get("resumed_from"))

    def _step(self, step: Any, first_step: Any) -> None:
        self.facts["step"] = step
        if self.facts.get("first_step") is None:
            self.facts["first_step"] = first_step

    def _checkpoint(self, step: Any) -> None:
        self.told = step
        if not self.held:
            self._keep(step)

    def _keep(self, step: Any) -> None:
        self.facts["checkpoint"] = step
        if step is not None:
            self._kept.append(step)

    def _take(self, line: bytes) -> bool:
        event, facts = parse_json(line), self.facts
        kind, step = event.get("kind"), number(event.get("step"))
        if "steps" in event:
            facts["steps"] = number(event["steps"])
        if kind == "step":
            loss = event.get("loss")
            if isinstance(loss, (int, float)):
                self.nonfinite = not math.isfinite(loss)
            self._step(step, step)
            facts["loss"] = number(loss)
            self.series.step(step, number(event.get("t")) or time.time(), event)
        elif kind == "checkpoint":
            self._checkpoint(step)
        elif kind == "resume":
            facts["resumed_from"] = step
        elif kind == "phase":
            facts["program_phase"] = str(event.get("name"))[:60]
        elif kind == "metric":
            name, metrics = str(event.get("name"))[:60], facts.get("metrics", {})
            if name in metrics or len(metrics) < MAX_METRICS:
                facts["metrics"] = {**metrics, name: number(event.get("value"))}
                self.series.metric(name, event.get("value"))
        self.signs += kind in ("phase", "step", "checkpoint")
        return kind in ("phase", "checkpoint", "resume", "verdict")


def number(value: Any) -> Any:
    """A number of a size that fits a report, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


class ReportWriter:
    """Keeps what the host says up to date: periodically, and soon after each change."""

    def __init__(
        self,
        put: Put,
        every: float,
        said: ReportDocument,
        vitals: Vitals,
        redactor: Redactor,
        more: Callable[[], bytes] = bytes,
    ) -> None:
        """`said`: the first report. `vitals`: facts that change all the time; asked for when a report is put, as is
        `more`, the curves. What `redactor` knows is in none of it."""
        self._put, self._vitals, self._every, self._more = put, vitals, max(1.0, every), more
        self._redactor = redactor
        self._said: ReportDocument = {**said}
        self._change = threading.Condition()
        self._urgent, self._last, self._hurry = True, False, False
        self._body = b""
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
                said, evidence, more = self._now()
            try:
                self._put(said, evidence, more, last)
                delay = 1.0
                if last:
                    return self._written.set()
            except StorageError:
                delay = min(delay * 2, 10)
                with self._change:
                    self._urgent = True
            with self._change:
                self._change.wait_for(lambda: self._hurry, timeout=delay)
                self._hurry = False

    def _now(self) -> Tuple[ReportDocument, bytes, bytes]:
        """Report, evidence and curves, without secrets."""
        said = json.dumps({**self._said, **self._vitals()})
        clean = parse_json(self._redactor.redact_text(said).encode())
        redact = self._redactor.redact
        return cast(ReportDocument, clean), redact(self._body), redact(self._more())
