"""What a probe comes to: data only, rendered in `cli/render/doctor/probe.py`."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"  #: as tpujob expects it
    DIFFERS = "differs"  #: seen to be otherwise
    UNTRIED = "untried"  #: could not be tried: neither


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with its reasons, each one sentence without a full stop."""

    verdict: Verdict
    expected: str
    seen: str


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the summary."""

    probe: str  #: its id
    verdict: Verdict
    expected: str
    seen: str
    settles: tuple[str, ...]  #: what in tpujob rests on it
    seconds: float
    file: str  #: its raw answers, in the folder


class UntriedError(Exception):
    """What the probe needs is not there. `str(error)` says what and why."""


def judged(expected: str, seen: str, *, as_expected: bool) -> Judged:
    return Judged(Verdict.OK if as_expected else Verdict.DIFFERS, expected, seen)
