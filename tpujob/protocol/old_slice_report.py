"""Reads the slice reports of older agents: objects in which one host reports for all hosts of its slice.

Agents no longer write slice reports, but agents that an older backend started may still run. Only the body is read. Its
lines are a signature, a head, curves, a report for each host, and evidence for the hosts that have some.
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
    age: float  #: seconds from the report to the writing of the object
    evidence: bytes


class SliceReport(NamedTuple):
    by: int  #: the host that wrote the object
    at: float | None  #: the time of writing by the storage's clock; None: unknown
    reports: list[OldHostReport]
    curves: bytes


def is_slice_report(metadata: Mapping[str, str]) -> bool:
    return "summary" in metadata


def read_slice_report(body: bytes, key: str) -> SliceReport | None:
    """Return the parsed body, or None if `key` did not sign it or it is malformed."""
    mac, _, rest = body.partition(b"\n")
    if not signing.verify(key, mac.decode("ascii", "replace"), "slice body", rest):
        return None
    try:
        head_line, curves, *lines = rest.split(b"\n")
        head = json.loads(head_line)
        rows = [json.loads(line) for line in lines[: head["n"]]]
        evidence_lines = [line.partition(b" ") for line in lines[head["n"] :]]
        evidence = {int(host): text for host, _, text in evidence_lines}
        reports = [_parse_host_report(row, evidence) for row in rows]
        at = None if head["at"] is None else _parse_finite(head["at"])
        return SliceReport(_parse_host(head["by"]), at, reports, curves)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def _parse_host_report(row: dict[str, Any], evidence: Mapping[int, bytes]) -> OldHostReport:
    age = _parse_finite(row.pop("age"))
    if age < 0:
        raise ValueError("the report is of the future")
    host = _parse_host(row["host"])
    return OldHostReport(host, cast(ReportDocument, row), age, evidence.get(host, b""))


def _parse_host(value: object) -> int:
    if type(value) is not int or not 0 <= value <= limits.MOST_HOSTS:
        raise ValueError("not the number of a host")
    return value


def _parse_finite(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(cast(float, value)):
        raise ValueError("not a finite number")
    return float(cast(float, value))
