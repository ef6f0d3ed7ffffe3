"""Reads the progress that the program reports, and keeps the metrics of its steps as curves.

A bucket of steps has the least, the greatest and the last value of each metric. When there are too many buckets, pairs
are merged. Curves are in the body of the report, so they need no extra request and outlive the slice.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from tpujob.agent.base import parse_json
from tpujob.agent.patterns import Match
from tpujob.protocol import ReportDocument
from tpujob.protocol.limits import MAX_CHECKPOINTS, MAX_METRICS
from tpujob.protocol.report import (
    MAX_NAMES,
    MAX_ROWS,
    MAX_SERIES,
    Cell,
    SeriesDocument,
)

MAX_EVENT = 64 * 1024  #: bytes
MAX_READ = 4 * 1024 * 1024  #: bytes
MAX_NAME = 60  #: characters of the name of a metric or a phase
MAX_CHECKPOINTS_KEPT = 200  #: newest checkpoints among which `facts_before` searches


class ProgressReader:
    """A reader of `events.jsonl`, in which the program reports its progress."""

    def __init__(self, path: str) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.facts: ReportDocument = {"metrics": {}}
        self.held = False  #: a checkpoint counts only once `confirm` is called
        self.newest_checkpoint: Any = None  #: the newest that the program reported
        self._pending: Deque[Any] = deque(
            maxlen=MAX_CHECKPOINTS_KEPT
        )  #: reported, and not counted yet
        self._checkpoints: Deque[Any] = deque(maxlen=MAX_CHECKPOINTS_KEPT)
        self.nonfinite_steps = 0  #: reported steps since the last finite loss
        self.signs = 0  #: phases, steps and checkpoints so far
        self.stepped_at = 0.0  #: time of the newest step in `events.jsonl`, by the host's clock
        self.series = Series()

    def look(self) -> bool:
        """Read new events, at most MAX_READ bytes. Return whether there may be more."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                data = file.read(MAX_READ)
        except OSError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_EVENT:
            self._rest = b""
        for line in filter(None, lines):
            self._process_event(line)
        return len(data) == MAX_READ

    def confirm(self, checkpoint: Any, is_incomplete: Callable[[Any], bool]) -> None:
        """Count this checkpoint, which is in the bucket now, after those reported before it that are complete there."""
        if checkpoint is None or checkpoint == self.facts.get("checkpoint"):
            return
        while checkpoint in self._pending:
            earlier = self._pending.popleft()
            if earlier != checkpoint and not is_incomplete(earlier):
                self._count_checkpoint(earlier)
        self._count_checkpoint(checkpoint)

    def facts_before(self, step: Any) -> ReportDocument:
        """Return the facts with the newest checkpoint before `step`: later ones may have wrong numbers."""
        good = [checkpoint for checkpoint in self._checkpoints if checkpoint < step]
        newest = good[-1] if good else None
        return {**self.facts, "checkpoint": newest, "checkpoints": good[-MAX_CHECKPOINTS:]}

    @property
    def nonfinite_since(self) -> Any:
        """The first step of the present losses that are not finite; None: they are finite, or that step is unknown."""
        return (self.facts.get("nonfinite") or {}).get("since")

    def note_nonfinite(self, loss: str, step: Any) -> None:
        """Record that the loss is not finite, at `step` at the latest."""
        since = self.nonfinite_since
        self.facts["nonfinite"] = {"loss": loss, "since": step if since is None else since}

    def read_output(self, matches: List[Match], first_step: Optional[int]) -> None:
        """Take the matches of patterns in the output, in the order of their lines."""
        for match in matches:
            if match.name == "progress":
                self._take_progress(match, first_step)
            elif match.step is not None and match.name == "checkpoint":
                self._set_checkpoint(match.step)
            elif match.step is not None:
                self.facts["resumed_from"] = match.step

    def _take_progress(self, match: Match, first_step: Optional[int]) -> None:
        facts, values = self.facts, match.values
        if match.steps is not None:
            facts["steps"] = match.steps
        if match.step is not None and match.step != facts.get("step"):
            self._set_step(match.step, first_step)
            self.series.step(match.step, time.time(), {})
        if "loss" in values:
            facts["loss"] = number(values["loss"])
            self._judge(values["loss"], facts.get("step"))
        for name, value in values.items():
            self.series.metric(name, value)
            if name != "loss":
                self._set_metric(name, value)

    @property
    def reports_steps(self) -> bool:
        """Whether the program reports its steps itself, by events or by the lines of a pattern."""
        return self.facts.get("step") is not None

    def _set_step(self, step: Any, first_step: Any) -> None:
        self.facts["step"] = step
        if self.facts.get("first_step") is None:
            self.facts["first_step"] = first_step

    def _set_checkpoint(self, step: Any) -> None:
        self.newest_checkpoint = step
        if not self.held:
            self._count_checkpoint(step)
        elif not self.facts.get("nonfinite"):
            self._pending.append(step)

    def _count_checkpoint(self, step: Any) -> None:
        self.facts["checkpoint"] = step
        since = self.nonfinite_since
        # of the others there may be more than MAX_CHECKPOINTS_KEPT
        if step is not None and (since is None or step < since):
            self._checkpoints.append(step)
            self.facts["checkpoints"] = [*self._checkpoints][-MAX_CHECKPOINTS:]

    def _process_event(self, line: bytes) -> None:
        event, facts = parse_json(line), self.facts
        kind, step = event.get("kind"), number(event.get("step"))
        if "steps" in event:
            facts["steps"] = number(event["steps"])
        if kind == "step":
            loss = _parse_number(event.get("loss"))
            if loss is None and event.get("nonfinite") is True:  # of a writer of JSON without NaN
                loss = float("nan")
            self._set_step(step, step)
            facts["loss"] = number(loss)
            self._judge(loss, step)
            self.stepped_at = float(number(event.get("t")) or time.time())
            self.series.step(step, self.stepped_at, {**event, "loss": loss})
        elif kind == "checkpoint":
            self._set_checkpoint(step)
        elif kind == "resume":
            facts["resumed_from"] = step
        elif kind == "phase":
            facts["program_phase"] = str(event.get("name"))[:MAX_NAME]
        elif kind == "metric":
            self._set_metric(str(event.get("name")), _parse_number(event.get("value")))
            self.series.metric(str(event.get("name")), event.get("value"))
        self.signs += kind in ("phase", "step", "checkpoint")

    def _set_metric(self, name: str, value: Any) -> None:
        metrics = dict(self.facts.get("metrics", {}))  # another thread may be writing the old ones
        add_metric(metrics, name, value)
        self.facts["metrics"] = metrics

    def _judge(self, loss: Any, step: Any) -> None:
        """Count a reported loss that is not finite. A finite one ends the count; without a loss nothing is known."""
        word = nonfinite_word(loss)
        if word:
            self.nonfinite_steps += 1
            self.note_nonfinite(word, step)
        elif loss is not None:
            self.nonfinite_steps = 0
            self.facts["nonfinite"] = None


def _parse_number(value: Any) -> Any:
    """Return a number, also of a text such as `nan`, as JSON has no NaN; None: any other value."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def nonfinite_word(value: Any) -> str:
    """Return one of NONFINITE_LOSSES; empty: the value is finite, or no number."""
    if not isinstance(value, float) or abs(value) < float("inf"):
        return ""
    return "NaN" if value != value else "inf" if value > 0 else "-inf"


def number(value: Any) -> Any:
    """Return a number that fits a report, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


def add_metric(metrics: Dict[str, Any], name: str, value: Any) -> None:
    """Set a metric as a report has it, unless there are MAX_METRICS others."""
    name = name[:MAX_NAME]
    if name in metrics or len(metrics) < MAX_METRICS:
        metrics[name] = nonfinite_word(value) or number(value)


# Curves of bounded size ----------------------------------------------------------------------------------------------


#: fields of a `step` that are not metrics
_NOT_METRICS = ("t", "step", "steps", "attempt", "host", "slice")


class _Bucket:
    """The metrics of consecutive steps."""

    def __init__(self) -> None:
        self.step: Any = None  #: the last step
        self.at, self.steps = 0.0, 0
        self.cells: Dict[str, List[float]] = {}  #: least, greatest, last value

    def put(self, name: str, value: float) -> None:
        least, greatest, _ = self.cells.get(name, (value, value, value))
        self.cells[name] = [min(least, value), max(greatest, value), value]

    def merge(self, later: _Bucket) -> None:
        self.step, self.at = later.step, later.at
        self.steps += later.steps
        for name, (least, greatest, last) in later.cells.items():
            self.put(name, least)
            self.put(name, greatest)
            self.cells[name][2] = last


class Series:
    """The curves of the program's metrics. Any thread may call its methods."""

    def __init__(self) -> None:
        self._buckets: List[_Bucket] = []
        self._capacity = 1  #: steps of a full bucket
        self._names: List[str] = []
        self._lock = threading.Lock()

    def step(self, step: Any, at: float, values: Dict[str, Any]) -> None:
        """Add a completed step, with the metrics among `values`."""
        with self._lock:
            if not self._buckets or self._buckets[-1].steps >= self._capacity:
                self._buckets.append(_Bucket())
            newest = self._buckets[-1]
            newest.step, newest.at = step, at
            newest.steps += 1
            for name, value in values.items():
                if name not in _NOT_METRICS:
                    self._put(name, value)
            if len(self._buckets) > MAX_ROWS:
                self._halve()

    def clear(self) -> None:
        """Remove all steps."""
        with self._lock:
            self._buckets, self._capacity, self._names = [], 1, []

    def metric(self, name: str, value: Any) -> None:
        """Add a metric to the newest step."""
        with self._lock:
            self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        name = name[:MAX_NAME]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not abs(value) < 1e300 or not self._buckets:
            return
        if name not in self._names:
            if len(self._names) == MAX_NAMES:
                return
            self._names.append(name)
        self._buckets[-1].put(name, float(value))

    def _halve(self) -> None:
        self._capacity *= 2
        for i, later in enumerate(self._buckets[1::2]):
            self._buckets[2 * i].merge(later)
        self._buckets = self._buckets[::2]

    def line(self) -> bytes:
        """Return the curves as JSON of at most `MAX_SERIES` bytes; empty without steps."""
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
    rounded = [float("%.5g" % value) for value in values]
    return rounded[0] if rounded[0] == rounded[1] else rounded
