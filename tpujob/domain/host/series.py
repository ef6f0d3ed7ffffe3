"""Reads the curves of an attempt from the body of the report of its host 0. Anybody may have written that who can write
to the bucket: it counts if the key of the attempt has signed it. What a program reports may be anything, too: what is
not a number in its place is ignored."""

import json
from collections.abc import Sequence
from typing import NamedTuple, cast

from tpujob.domain.host.reports import number
from tpujob.domain.text import one_line
from tpujob.protocol.old_slice_report import read_slice_report
from tpujob.protocol.report import MAX_NAMES, MAX_ROWS, MAX_SERIES_READ, read_report_body


class Point(NamedTuple):
    """A bucket of steps."""

    step: int  #: the last one
    at: float  #: seconds since the epoch, by the host's clock
    least: float
    most: float
    last: float


class SignedCurves(NamedTuple):
    """The curves in a body that hosts of the attempt have signed."""

    number: int  #: of the report; the newer of two bodies has the higher one
    line: bytes  #: for `read_series`; empty: its program has reported no steps


def read_curves(body: bytes, key: str) -> SignedCurves | None:
    """Return the curves in a body; None: it is not signed with that key."""
    if content := read_report_body(body, key):
        number, line = content.seq, content.curves
    elif old := read_slice_report(body, key):
        numbers = [n for one in old.reports if isinstance(n := one.document.get("seq"), int)]
        number, line = max(numbers, default=0), old.curves
    else:
        return None
    return SignedCurves(number, line if len(line) <= MAX_SERIES_READ else b"")


def read_series(line: bytes) -> dict[str, list[Point]]:
    """Return the points of each number by its name, in the order of steps. `""` has those of every bucket, with
    zeros."""
    try:
        document: object = json.loads(line) if line else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    names, rows = (cast("dict[str, object]", document).get(key) for key in ("names", "rows"))
    if not isinstance(names, list) or not isinstance(rows, list):
        return {}
    called = [one_line(n, 60) if isinstance(n, str) else "" for n in cast("list[object]", names)]
    found: dict[str, list[Point]] = {"": []}
    for row in cast("list[object]", rows)[: 2 * MAX_ROWS]:
        if isinstance(row, list):
            _take(cast("list[object]", row), called[:MAX_NAMES], found)
    return {name: sorted(points) for name, points in found.items() if points}


def _take(row: Sequence[object], names: Sequence[str], found: dict[str, list[Point]]) -> None:
    step, at = (number(value) for value in (*row[:2], None, None)[:2])
    if step is None or at is None or abs(step) >= 2**53:
        return
    found[""].append(Point(int(step), at, 0.0, 0.0, 0.0))
    for name, cell in zip(names, row[2:], strict=False):
        values = cast("list[object]", cell) if isinstance(cell, list) else [cell] * 3
        known = [one for one in map(number, values[:3]) if one is not None]
        if name and len(known) == 3:
            found.setdefault(name, []).append(Point(int(step), at, known[0], known[1], known[2]))
