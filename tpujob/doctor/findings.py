"""The records that all checks share: a finding, and a look that failed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Severity(StrEnum):
    OK = "ok"
    WARN = "warn"  #: jobs run, but something about it will cost time, money or safety
    FAIL = "fail"  #: jobs do not run before this is put right
    UNKNOWN = "unknown"  #: could not be checked: neither good nor bad


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str  #: of the check, one or two words; empty until it is named
    verdict: Severity
    what: str  #: one sentence without a full stop
    cure: str = ""  #: what to do next: one line, mostly a command that can be pasted

    def named(self, name: str) -> "Finding":
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class NotSeen:
    """A read that failed: nothing is concluded from it."""

    why: str
    cure: str = ""


def ok(what: str) -> Finding:
    return Finding("", Severity.OK, what)


def warn(what: str, cure: str = "") -> Finding:
    return Finding("", Severity.WARN, what, cure)


def fail(what: str, cure: str) -> Finding:
    return Finding("", Severity.FAIL, what, cure)


def unknown(seen: NotSeen) -> Finding:
    return Finding("", Severity.UNKNOWN, f"could not be checked: {seen.why}", seen.cure)


def judged(name: str, seen: T | NotSeen, check: Callable[[T], Finding]) -> Finding:
    """Return the finding of a check under its name; UNKNOWN if the fact could not be read."""
    return (unknown(seen) if isinstance(seen, NotSeen) else check(seen)).named(name)


def worst(findings: Iterable[Finding]) -> Severity:
    """FAIL before UNKNOWN before WARN; OK of no findings."""
    found = {one.verdict for one in findings}
    order = (Severity.FAIL, Severity.UNKNOWN, Severity.WARN)
    return next((verdict for verdict in order if verdict in found), Severity.OK)


def listed(names: Iterable[str], most: int = 4) -> str:
    """The names in a sentence; of many, the first ones and how many there are beside them."""
    names = list(names)
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
