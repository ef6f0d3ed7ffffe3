"""Lines of output that name the cause of an end, and lines that prove nothing. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpujob.domain.model import Cause


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that names a cause."""

    cause: Cause
    pattern: re.Pattern[str]
    words: str


def _sign(cause: Cause, pattern: str, words: str) -> Sign:
    return Sign(cause, re.compile(pattern), words)


#: the first that matches counts, narrow ones first: a TPU that is in use shows as a failed initialization, too
SIGNS: tuple[Sign, ...] = (
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
        "the program may not do what it does",
    ),
    _sign(
        Cause.SETUP,
        r"^(?:ba)?sh: .*\bpython: (?:command )?not found$|\[tpujob\] cannot start python:",
        "there is no `python` where it runs, as Ubuntu has `python3` alone; write that",
    ),
    _sign(
        Cause.SETUP,
        r"^ModuleNotFoundError: No module named|\[tpujob\] cannot start "
        r"|^(?:ba)?sh: .*: (?:command )?not found$",
        "something that the program needs is not installed",
    ),
    _sign(Cause.CRASH, r"No space left on device", "the disk of the host is full"),
)

#: what a host prints when it failed only because another one was gone
ECHO = re.compile(
    r"PollForError|coordination service.*(?:error|unavailable|fatal|shut)|tasks? (?:is|are) unhealthy"
    r"|stopped sending heartbeats|(?i:heartbeat timeout)|(?i:barrier (?:timed out|failed))"
    r"|Connection (?:reset|closed) by (?:remote )?peer|another task (?:died|has (?:failed|crashed))"
)

#: what libraries print on every host that has no key file, whatever happens
NOISE = re.compile(r"google_auth_provider|Could not find the credentials file")


def sign_of(lines: Sequence[str]) -> tuple[Sign, list[str]] | None:
    """The cause that these lines name, and those that do; None: they name none."""
    for sign in SIGNS:
        found = [line for line in lines if sign.pattern.search(line)]
        if found:
            return sign, found
    return None
