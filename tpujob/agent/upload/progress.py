"""Reads the progress that the program reports, and keeps the numbers of its steps as a curve.

Buckets of so many steps hold the least, the greatest and the last value of each number. When there are too many, each
two become one. They are part of the body of the report, so they cost no request and outlive the slice.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional

from tpujob.agent.base import parse_json
from tpujob.protocol import ReportDocument
from tpujob.protocol.limits import MAX_METRICS
from tpujob.protocol.report import MAX_NAMES, MAX_ROWS, MAX_SERIES, Cell, SeriesDocument

LONGEST_EVENT = 64 * 1024  #: bytes
KEPT = 200  #: checkpoints, counted from the newest, among which one before a bad step is looked for


class ProgressReader:
    """How far the program is, from the `events.jsonl` that the contract lets it write."""

    def __init__(self, path: str) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.facts: ReportDocument = {"metrics": {}}
        self.held = False  #: a checkpoint counts once it is confirmed: the bucket gets it later
        #: the newest that the program reported
        self.newest_checkpoint: Any = None
        self._kept: Deque[Any] = deque(maxlen=KEPT)
        self.nonfinite = False  #: the newest loss that the program reported was not finite
        self.signs = 0  #: phases, steps and checkpoints so far
        self.series = Series()  #: how the numbers of its steps went

    def look(self) -> None:
        """Read what is new."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                data = file.read(4 * 1024 * 1024)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_EVENT:
            self._rest = b""
        for line in filter(None, lines):
            self._take(line)

    def confirm(self, checkpoint: Any) -> None:
        """The bucket has this checkpoint."""
        if checkpoint is not None and checkpoint != self.facts.get("checkpoint"):
            self._keep(checkpoint)

    def facts_before(self, step: Any) -> ReportDocument:
        """Its facts, but of its checkpoints the newest before this step, as what was saved since may hold wrong
        numbers."""
        sound = [kept for kept in self._kept if kept < step]
        return {**self.facts, "checkpoint": sound[-1] if sound else None}

    def read_output(self, steps: Dict[str, int], first_step: Optional[int]) -> None:
        """Take the steps that patterns found in its output, by the name of the pattern."""
        step = steps.get("progress")
        if step is not None and step != self.facts.get("step"):
            self._step(step, first_step)
            self.series.step(step, time.time(), {})
        if "checkpoint" in steps:
            self._checkpoint(steps["checkpoint"])
        if "resume" in steps:
            self.facts["resumed_from"] = steps["resume"]

    def _step(self, step: Any, first_step: Any) -> None:
        self.facts["step"] = step
        if self.facts.get("first_step") is None:
            self.facts["first_step"] = first_step

    def _checkpoint(self, step: Any) -> None:
        self.newest_checkpoint = step
        if not self.held:
            self._keep(step)

    def _keep(self, step: Any) -> None:
        self.facts["checkpoint"] = step
        if step is not None:
            self._kept.append(step)

    def _take(self, line: bytes) -> None:
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


def number(value: Any) -> Any:
    """A number of a size that fits a report, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


# The numbers of the steps, as a curve of bounded size ----------------------------------------------------------------


#: numbers of a `step` that are no curve
_PLACES = ("t", "step", "steps", "attempt", "host", "slice")


class _Bucket:
    def __init__(self) -> None:
        self.step: Any = None
        self.at, self.steps = 0.0, 0
        self.cells: Dict[str, List[float]] = {}  #: least, greatest, last

    def put(self, name: str, value: float) -> None:
        least, most, _ = self.cells.get(name, (value, value, value))
        self.cells[name] = [min(least, value), max(most, value), value]

    def take(self, later: _Bucket) -> None:
        self.step, self.at, self.steps = later.step, later.at, self.steps + later.steps
        for name, (least, most, last) in later.cells.items():
            self.put(name, least)
            self.put(name, most)
            self.cells[name][2] = last


class Series:
    """Any thread may call it."""

    def __init__(self) -> None:
        self._buckets: List[_Bucket] = []
        self._each = 1  #: steps of a full bucket
        self._names: List[str] = []
        self._lock = threading.Lock()

    def step(self, step: Any, at: float, values: Dict[str, Any]) -> None:
        """Add a step that is over, with the numbers among its values."""
        with self._lock:
            if not self._buckets or self._buckets[-1].steps >= self._each:
                self._buckets.append(_Bucket())
            newest = self._buckets[-1]
            newest.step, newest.at, newest.steps = step, at, newest.steps + 1
            for name, value in values.items():
                if name not in _PLACES:
                    self._put(name, value)
            if len(self._buckets) > MAX_ROWS:
                self._halve()

    def metric(self, name: str, value: Any) -> None:
        """Add a number that was reported after the newest step."""
        with self._lock:
            self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not plain or not abs(value) < 1e300 or not self._buckets:
            return
        if name not in self._names:
            if len(self._names) == MAX_NAMES:
                return
            self._names.append(name)
        self._buckets[-1].put(name, float(value))

    def _halve(self) -> None:
        self._each *= 2
        for i, later in enumerate(self._buckets[1::2]):
            self._buckets[2 * i].take(later)
        self._buckets = self._buckets[::2]

    def line(self) -> bytes:
        """Return the series as it is shipped, in at most `MAX_SERIES` bytes; empty: no step was reported."""
        with self._lock:
            while self._buckets:
                rows = [_row(bucket, self._names) for bucket in self._buckets]
                document: SeriesDocument = {"v": 1, "names": [*self._names], "rows": rows}
                text = json.dumps(document, separators=(",", ":"))
                if len(text) <= MAX_SERIES:
                    return text.encode()
                self._halve()
            return b""


def _row(bucket: _Bucket, names: List[str]) -> List[Cell]:
    cells = [_cell(bucket.cells.get(name)) for name in names]
    return [bucket.step, round(bucket.at, 1), *cells]


def _cell(values: Any) -> Cell:
    if values is None:
        return None
    short = [float("%.5g" % value) for value in values]
    return short[0] if short[0] == short[1] else short
