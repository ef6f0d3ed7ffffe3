"""The records that all checks share: a finding, and a read that failed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Severity(StrEnum):
    OK = "ok"
    WARN = "warn"  #: jobs run, at a cost of time, money or safety
    FAIL = "fail"  #: jobs do not run until this is cured
    UNKNOWN = "unknown"  #: could not be checked


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str  #: the check's name, one or two words; empty until `named` sets it
    verdict: Severity
    what: str  #: the result in one sentence, without a full stop
    cure: str = ""  #: the next step in one line, mostly a command that can be pasted

    def named(self, name: str) -> "Finding":
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class NotSeen:
    """A read that failed: nothing is concluded from it."""

    why: str
    cure: str = ""


def ok(text: str) -> Finding:
    return Finding("", Severity.OK, text)


def warn(text: str, cure: str = "") -> Finding:
    return Finding("", Severity.WARN, text, cure)


def fail(text: str, cure: str) -> Finding:
    return Finding("", Severity.FAIL, text, cure)


def unknown(fact: NotSeen) -> Finding:
    return Finding("", Severity.UNKNOWN, f"could not be checked: {fact.why}", fact.cure)


def judged(name: str, fact: T | NotSeen, check: Callable[[T], Finding]) -> Finding:
    """Return the finding of a check under its name; UNKNOWN if the fact could not be read."""
    return (unknown(fact) if isinstance(fact, NotSeen) else check(fact)).named(name)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the most severe verdict: FAIL, then UNKNOWN, then WARN; OK without findings."""
    verdicts = {finding.verdict for finding in findings}
    order = (Severity.FAIL, Severity.UNKNOWN, Severity.WARN)
    return next((verdict for verdict in order if verdict in verdicts), Severity.OK)


def listed(names: Iterable[str], limit: int = 4) -> str:
    """Return the names in a sentence; of more than `limit`, the first ones and the number of the others."""
    names = list(names)
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[: limit - 1])} and {len(names) - limit + 1} more"
