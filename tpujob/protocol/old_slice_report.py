"""Reads what agents wrote that reported for their whole slice: one object of one host has the reports of all hosts.

No agent writes such objects any more; those that an older backend started may still run. The body alone is read. It is
lines: a signature, a head, curves, the report of each host, the evidence of those that have any.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from tpujob.protocol import limits, signing
from tpujob.protocol.report import ReportDocument


class OldHostReport(NamedTuple):
    """The newest report of one host."""

    host: int
    document: ReportDocument
    age: float  #: seconds that the report was old when the object was written
    evidence: bytes


class SliceReport(NamedTuple):
    by: int  #: the host that wrote the object
    at: float | None  #: when it was made, by the storage's clock; None: unknown
    reports: list[OldHostReport]
    curves: bytes


def is_slice_report(metadata: Mapping[str, str]) -> bool:
    return "summary" in metadata


def read_slice_report(body: bytes, key: str) -> SliceReport | None:
    """Return what a body says; None: it is not signed with that key, or is not such a body."""
    mac, _, rest = body.partition(b"\n")
    if not signing.verify(key, mac.decode("ascii", "replace"), "slice body", rest):
        return None
    try:
        first, curves, *lines = rest.split(b"\n")
        head = json.loads(first)
        rows = [json.loads(line) for line in lines[: head["n"]]]
        parts = [line.partition(b" ") for line in lines[head["n"] :]]
        evidence = {int(host): text for host, _, text in parts}
        reports = [_host_report(row, evidence) for row in rows]
        at = None if head["at"] is None else _finite(head["at"])
        return SliceReport(_host(head["by"]), at, reports, curves)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def _host_report(row: dict[str, Any], evidence: Mapping[int, bytes]) -> OldHostReport:
    age = _finite(row.pop("age"))
    if age < 0:
        raise ValueError("the report is of the future")
    host = _host(row["host"])
    return OldHostReport(host, cast(ReportDocument, row), age, evidence.get(host, b""))


def _host(value: object) -> int:
    if type(value) is not int or not 0 <= value <= limits.MOST_HOSTS:
        raise ValueError("not the number of a host")
    return value


def _finite(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(cast(float, value)):
        raise ValueError("not a finite number")
    return float(cast(float, value))
