"""The lines that an attempt keeps as the proof of its cause. Pure."""

import re
from collections.abc import Sequence

from tpujob.domain.failures.signs import NOISE
from tpujob.domain.model import Proof
from tpujob.domain.observations import Report
from workloads.contract import Exit

LINES = 10  #: of evidence that an attempt keeps
WIDTH = 240  #: characters of one with its host

_TRACEBACK = "Traceback (most recent call last)"
#: where the files of an attempt lie on its host; the folder of the job's code is `work/` there
_FOLDER = re.compile(r"/[^\s\"']*/\.tpujob/attempts/[^/\s\"']+/(?:work/)?")
_MARKS = re.compile(r"[\s^~]*")
_CLASS = re.compile(r"((?:[^\W\d]\w*\.)*[A-Z]\w*)(?::|\s*$)")


def proofs(culprit: Report, named: Sequence[str], ordered: Sequence[Report]) -> tuple[Proof, ...]:
    """The lines that prove the cause, then how the other hosts followed."""
    lines = list(dict.fromkeys(named))[-4:] or _last_words(culprit.evidence)
    own = [proof(culprit.host, line) for line in lines]
    others = [r for r in ordered if r.host != culprit.host]
    room = max(1, LINES - len(own) - 1)
    after = [proof(r.host, f"ended too: {ending(code_of(r))}") for r in others[:room]]
    left = len(others) - room
    more = [Proof(None, f"{left} more hosts ended too")] if left > 0 else []
    return (*own, *after, *more)


def _last_words(lines: Sequence[str]) -> list[str]:
    """The end of the last traceback, or of everything, with paths from the job's folder."""
    traceback = _traceback(lines)
    plain = [line for line in lines if line.strip() and not NOISE.search(line)]
    told = [_FOLDER.sub("", line) for line in traceback or plain if not _MARKS.fullmatch(line)]
    return told[-6:]


def _traceback(lines: Sequence[str]) -> list[str]:
    """The last traceback, up to the line that names its error."""
    starts = [i for i, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return []
    rest = lines[starts[-1] + 1 :]
    length = next((i for i, line in enumerate(rest) if line and not line[0].isspace()), len(rest))
    return [lines[starts[-1]], *rest[: length + 1]]


def last_error(lines: Sequence[str]) -> str:
    """The line that names the last traceback's error; empty without one."""
    traceback = _traceback(lines)
    return traceback[-1] if traceback and not traceback[-1][:1].isspace() else ""


def error_class(error: str) -> str:
    """What `last_error` says before its text; empty: it does not begin with the name of a class."""
    found = _CLASS.match(error[:100])
    return found[1] if found else ""


def proof(host: int, text: str) -> Proof:
    """A line of evidence, cut to its width."""
    return Proof(host, text[: WIDTH - len(str(Proof(host, "")))])


def code_of(report: Report) -> int:
    """The exit code of a program that has ended."""
    return report.exit_code if report.exit_code is not None else int(Exit.ERROR)


def ending(code: int) -> str:
    """An exit code in words."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
