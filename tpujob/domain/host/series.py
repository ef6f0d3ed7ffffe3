"""Reads the curves of an attempt from the body of host 0's report. Pure.

The body counts only if the key of the attempt has signed it, as other programs can write to the bucket. Values that are
no numbers are ignored.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple, cast

from tpujob.domain.host.reports import number
from tpujob.domain.text import one_line
from tpujob.protocol.report import MAX_NAMES, MAX_ROWS, MAX_SERIES_READ, read_report_body


class Point(NamedTuple):
    """The values of a number in a bucket of steps."""

    step: int  #: the last step
    at: float  #: seconds since the epoch, by the host's clock
    least: float
    most: float
    last: float


class SignedCurves(NamedTuple):
    """The curves in a signed body."""

    number: int  #: number of the report; the newer of two bodies has the higher number
    line: bytes  #: input of `read_series`; empty: the program has reported no steps


def read_curves(body: bytes, key: str) -> SignedCurves | None:
    """Return the curves in a body; None: the body is not signed with that key."""
    content = read_report_body(body, key)
    if content is None:
        return None
    return SignedCurves(
        content.seq, content.curves if len(content.curves) <= MAX_SERIES_READ else b""
    )


def read_series(line: bytes) -> dict[str, list[Point]]:
    """Return the points of each number by its name, in the order of steps; under `""`, a zero for each bucket."""
    try:
        document: object = json.loads(line) if line else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    names, rows = (cast("dict[str, object]", document).get(key) for key in ("names", "rows"))
    if not isinstance(names, list) or not isinstance(rows, list):
        return {}
    labels = [one_line(n, 60) if isinstance(n, str) else "" for n in cast("list[object]", names)]
    series: dict[str, list[Point]] = {"": []}
    for row in cast("list[object]", rows)[: 2 * MAX_ROWS]:
        if isinstance(row, list):
            _add_row(cast("list[object]", row), labels[:MAX_NAMES], series)
    return {name: sorted(points) for name, points in series.items() if points}


def _add_row(row: Sequence[object], names: Sequence[str], series: dict[str, list[Point]]) -> None:
    if len(row) < 2:
        return
    step, at = number(row[0]), number(row[1])
    if step is None or at is None or abs(step) >= 2**53:
        return
    series[""].append(Point(int(step), at, 0.0, 0.0, 0.0))
    for name, cell in zip(names, row[2:], strict=False):
        values = cast("list[object]", cell) if isinstance(cell, list) else [cell] * 3
        numbers = [value for value in map(number, values[:3]) if value is not None]
        if name and len(numbers) == 3:
            series.setdefault(name, []).append(Point(int(step), at, *numbers))
