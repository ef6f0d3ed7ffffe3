"""Calls to other machines: retries with backoff, and the clock of the server.

Imports no vendor's library, because the cheapest commands use this module too.
"""

import contextlib
import math
import random
import sys
import time
from collections.abc import Callable, Generator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, TpujobError, Transient
from tpujob.lib.tries import Backoff, Deadline
from tpujob.lib.wall_time import WallTime

T = TypeVar("T")

_CLOCK_AGE = 60.0  #: seconds for which a measured offset between two clocks is trusted


class Missing(Refused):
    """The service has answered that the resource does not exist."""


#: called after each request with its method and its outcome: `done`, `absent`, `transient` or `refused`
Count = Callable[[str, str], None]


def uncounted(method: str, outcome: str) -> None:
    """Ignore a request: the `Count` of adapters without metrics."""
    del method, outcome


@contextlib.contextmanager
def counted(count: Count, method: str) -> Generator[None]:
    """Count the request that the block makes, with its outcome."""
    outcome = "done"
    try:
        yield
    except TpujobError as error:
        outcome = "transient" if isinstance(error, Transient) else "refused"
        if isinstance(error, Missing | NotFound):
            outcome = "absent"
        raise
    finally:
        count(method, outcome)


def repeated(
    call: Callable[[float, int], T],
    deadline: Deadline,
    backoff: Backoff,
    *,
    tries: int = sys.maxsize,
    worth_it: Callable[[Transient], bool] = lambda _: True,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `call(seconds left, failures so far)` until it succeeds, and return its result. Raises its error when that
    is not Transient or not `worth_it`, or when no try or no time is left for another one."""
    failures = 0
    while True:
        try:
            return call(max(deadline.remaining(), 0.001), failures)
        except Transient as error:
            failures += 1
            pause = backoff.pause(failures, random.random())  # noqa: S311
            late = failures >= tries or pause >= deadline.remaining()
            if late or not worth_it(error):
                raise
        sleep(pause)


class ServerClock:
    """A server's clock, to a second, read from the header `Date` of its newest answer. Thread-safe."""

    def __init__(self) -> None:
        #: seconds by which the server's clock is ahead of our monotonic one; until when that is trusted
        self._offset = (0.0, -math.inf)

    def note(self, date: str, sent: float) -> None:
        """Note the header `Date` of an answer that has just arrived; `sent`: when its request was, by `monotonic`."""
        received = time.monotonic()
        with contextlib.suppress(ValueError):
            server = parsedate_to_datetime(date).timestamp()
            # half a second on average: the header has whole seconds
            self._offset = server + 0.5 - (sent + received) / 2, received + _CLOCK_AGE

    def now(self) -> float | None:
        """Return the server's time; None when it has sent no answer in the last minute."""
        ahead, until = self._offset
        ours = time.monotonic()
        return ours + ahead if ours < until else None


def status_of(error: Any) -> str:
    """Return the name of the gRPC status behind an error of Google's libraries."""
    return error.grpc_status_code.name if error.grpc_status_code is not None else "UNKNOWN"


def bad_proxy() -> Refused:
    """Return the error for a proxy that requests cannot use."""
    return Refused("HTTPS_PROXY is not an http:// proxy", cause=Cause.BAD_SPEC)


def first_line(error: object) -> str:
    """Return the first line of a message, without a full stop, to stand after a colon."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return line.rstrip(". ")[:300]


# The system's clock ---------------------------------------------------------------------------------------------------


def steady() -> float:
    """Return the seconds since the machine was booted, also those for which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Return the id of the machine's boot: seconds since two boots do not compare."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class SystemClock:
    """Implements `ports.Clock`."""

    def __init__(self) -> None:
        self._wall_time = WallTime(time.time, steady)

    def now(self) -> float:
        return self._wall_time.now()

    def steady(self) -> float:
        return steady()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
