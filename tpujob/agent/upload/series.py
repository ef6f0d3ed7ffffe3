"""The numbers of a program's steps as a curve of bounded size, however many steps there are.

Buckets of so many steps hold the least, the greatest and the last value of each number. When there are too many, each
two become one. They are part of the body of the report, so they cost no request and outlive the slice.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Dict, List

from tpujob.protocol.report import MAX_NAMES, MAX_ROWS, MAX_SERIES, Cell, SeriesDocument

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
