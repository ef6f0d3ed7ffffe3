"""The lines that an attempt keeps as the proof of its cause. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpujob.domain.model import Cause, Proof
from tpujob.domain.observations import HostReport
from workloads.contract import Exit

LINES = 10  #: of evidence that an attempt keeps
WIDTH = 240  #: characters of one with its host

_TRACEBACK = "Traceback (most recent call last)"
#: where the files of an attempt lie on its host; the folder of the job's code is `work/` there
_FOLDER = re.compile(r"/[^\s\"']*/\.tpujob/attempts/[^/\s\"']+/(?:work/)?")
_MARKS = re.compile(r"[\s^~]*")
_CLASS = re.compile(r"((?:[^\W\d]\w*\.)*[A-Z]\w*)(?::|\s*$)")


def proofs(
    culprit: HostReport, named: Sequence[str], ordered: Sequence[HostReport]
) -> tuple[Proof, ...]:
    """Return the lines that prove the cause, then the ends of the other hosts."""
    lines = list(dict.fromkeys(named))[-4:] or _last_words(culprit.evidence)
    own = [proof(culprit.host, line) for line in lines]
    others = [r for r in ordered if r.host != culprit.host]
    room = max(1, LINES - len(own) - 1)
    after = [proof(r.host, f"also ended: {ending(code_of(r))}") for r in others[:room]]
    left = len(others) - room
    rest = [Proof(None, f"{left} more hosts also ended")] if left > 0 else []
    return (*own, *after, *rest)


def _last_words(lines: Sequence[str]) -> list[str]:
    """Return the end of the last traceback, or of everything, with paths from the job's folder."""
    traceback = _traceback(lines)
    plain = [line for line in lines if line.strip() and not NOISE.search(line)]
    shown = [_FOLDER.sub("", line) for line in traceback or plain if not _MARKS.fullmatch(line)]
    return shown[-6:]


def _traceback(lines: Sequence[str]) -> list[str]:
    """Return the last traceback, up to the line that names its error; empty: there is none."""
    starts = [i for i, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return []
    rest = lines[starts[-1] + 1 :]
    length = next((i for i, line in enumerate(rest) if line and not line[0].isspace()), len(rest))
    return [lines[starts[-1]], *rest[: length + 1]]


def last_error(lines: Sequence[str]) -> str:
    """Return the line that names the last traceback's error; empty: there is none."""
    traceback = _traceback(lines)
    return traceback[-1] if traceback and not traceback[-1][:1].isspace() else ""


def error_class(error: str) -> str:
    """Return the class of the error that `last_error` names; empty: it does not begin with one."""
    match = _CLASS.match(error[:100])
    return match[1] if match else ""


def proof(host: int, text: str) -> Proof:
    """Return a line of evidence, cut so that it has WIDTH characters with its host."""
    return Proof(host, text[: WIDTH - len(str(Proof(host, "")))])


def code_of(report: HostReport) -> int:
    """Return the exit code of a program that has ended; of one that was not started, the code of an error."""
    return report.exit_code if report.exit_code is not None else int(Exit.ERROR)


def ending(code: int) -> str:
    """Return an exit code in words."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


# Lines of output that name a cause -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """A line that names a cause."""

    cause: Cause
    pattern: re.Pattern[str]
    words: str


def _sign(cause: Cause, pattern: str, words: str) -> ErrorPattern:
    return ErrorPattern(cause, re.compile(pattern), words)


#: the first pattern that matches counts: a TPU in use, for example, also prints that its initialization failed
SIGNS: tuple[ErrorPattern, ...] = (
    _sign(
        Cause.TPU_BUSY,
        r"Couldn't open iommu group|open\(/dev/(?:vfio|accel)|TPU is already in use|libtpu_lockfile"
        r"|libtpu multi-process lockfile|libtpu\.so (?:is )?already in use"
        r"|(?i:(?:vfio|accel|iommu|tpu).*Device or resource busy)"
        r"|(?i:Device or resource busy.*(?:vfio|accel|iommu|tpu))"
        r"|FAILED_PRECONDITION.*(?i:tpu|accelerator)",
        "another process holds the TPU",
    ),
    _sign(
        Cause.BAD_HOST,
        r"No accelerator found|Failed to initialize TPU system|TPU initialization failed"
        r"|Did you run your code on all TPU hosts|(?i:uncorrectable (?:ECC|memory) error)",
        "the TPU of this host does not come up",
    ),
    _sign(
        Cause.OOM_HBM,
        r"memory space hbm|Exceeded hbm capacity|Error allocating device buffer"
        r"|RESOURCE_EXHAUSTED.*(?i:hbm|out of memory|attempting to (?:allocate|reserve)"
        r"|trying to allocate|device memory)",
        "the memory of the TPU is too small for the program",
    ),
    _sign(
        Cause.OOM_HOST,
        r"(?:^|[.\s])_?(?:Array)?MemoryError(?::|\s*$)|std::bad_alloc|Cannot allocate memory"
        r"|\[tpujob\] the kernel killed|Out of memory: Killed process"
        r"|DataLoader worker .*killed by signal: Killed",
        "the memory of the host is too small for the program",
    ),
    _sign(
        Cause.PERMISSION,
        r"does not have storage\.\S+ (?:access|permission)|IAM_PERMISSION_DENIED",
        "the program lacks a permission",
    ),
    _sign(
        Cause.SETUP,
        r"^(?:ba)?sh: .*\bpython: (?:command )?not found$|\[tpujob\] cannot start python:",
        "there is no `python` where it runs: Ubuntu has only `python3`; use that",
    ),
    _sign(
        Cause.SETUP,
        r"^ModuleNotFoundError: No module named|\[tpujob\] cannot start "
        r"|^(?:ba)?sh: .*: (?:command )?not found$",
        "something that the program needs is not installed",
    ),
    _sign(Cause.CRASH, r"No space left on device", "the disk of the host is full"),
)

#: output of a host that failed only because another host was gone
ECHO = re.compile(
    r"PollForError|coordination service.*(?:error|unavailable|fatal|shut)|tasks? (?:is|are) unhealthy"
    r"|stopped sending heartbeats|(?i:heartbeat timeout)|(?i:barrier (?:timed out|failed))"
    r"|Connection (?:reset|closed) by (?:remote )?peer|another task (?:died|has (?:failed|crashed))"
    r"|Socket closed|grpc_status:14"
)

#: output of libraries on every host without a key file, also without any failure
NOISE = re.compile(r"google_auth_provider|Could not find the credentials file")


def sign_of(lines: Sequence[str]) -> tuple[ErrorPattern, list[str]] | None:
    """Return the cause that these lines name, and the lines that name it; None: they name none."""
    for sign in SIGNS:
        matches = [line for line in lines if sign.pattern.search(line)]
        if matches:
            return sign, matches
    return None


def is_echo(evidence: Sequence[str]) -> bool:
    """Return whether the evidence of one host shows only that another host was gone: the program's last error, or else
    its last lines, report a lost peer. What ended that other host is unknown from here."""
    error = last_error(evidence)
    return any(ECHO.search(line) for line in ([error] if error else evidence))
