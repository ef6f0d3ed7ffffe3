"""What calls to other machines have in common: a deadline, repeats with growing pauses, and the other side's clock.

Imports no vendor's library, as the cheapest commands use it too.
"""

import contextlib
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from tpujob.errors import NotFound, Refused, TpujobError, Transient

T = TypeVar("T")

_CLOCK_AGE = 60.0  #: seconds for which the offset between two clocks is trusted


class Missing(Refused):
    """A clear answer says that it does not exist."""


#: called after each call with its method, and `done`, `absent`, `transient` or `refused`
Count = Callable[[str, str], None]


def uncounted(method: str, outcome: str) -> None:
    """Count nothing."""
    del method, outcome


def outcome_of(error: TpujobError | None) -> str:
    """Return how a call is counted; None: it succeeded."""
    match error:
        case None:
            return "done"
        case Missing() | NotFound():
            return "absent"
        case Transient():
            return "transient"
        case _:
            return "refused"


class Deadline:
    """The moment by which a call must have its answer, however many requests it makes."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at = clock, clock() + seconds

    def remaining(self) -> float:
        """Seconds; 0 when the moment has passed."""
        return max(0.0, self._at - self._clock())

    def left(self, most: float = math.inf, *, doing: str = "") -> float:
        """Return the seconds that one step may take, at most `most`. Raises Transient when there are none left."""
        left = self.remaining()
        if not left:
            raise Transient(f"{doing}: no answer in time" if doing else "no answer in time")
        return min(most, left)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between the tries of one call. The full pause doubles from try to try; a random part of its second
    half is left out, so that callers who failed together do not come back together."""

    first: float  #: seconds
    longest: float
    tries: int = sys.maxsize
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def pause(self, failures: int) -> float:
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return full * (1 + self.chance()) / 2


def repeated(
    call: Callable[[float, int], T],
    deadline: Deadline,
    backoff: Backoff,
    *,
    worth_it: Callable[[Transient], bool] = lambda _: True,
) -> T:
    """Call `call(seconds left, failures so far)` until it succeeds. Raises its error when that is not Transient, not
    `worth_it`, or when no try or no time for another one is left."""
    failures = 0
    while True:
        try:
            return call(max(deadline.remaining(), 0.001), failures)
        except Transient as error:
            failures += 1
            pause = backoff.pause(failures)
            late = failures >= backoff.tries or pause >= deadline.remaining()
            if late or not worth_it(error):
                raise
        backoff.sleep(pause)


class ServerClock:
    """A server's time, to a second, by the `Date` of its newest answer. Threads may share it."""

    def __init__(self) -> None:
        #: how far its clock is ahead of our monotonic one, and until when it is trusted
        self._known = (0.0, -math.inf)

    def note(self, date: str, sent: float) -> None:
        """Note the `Date` of an answer that arrived just now to a request `sent` then, by our monotonic clock."""
        with contextlib.suppress(ValueError):
            server, received = parsedate_to_datetime(date).timestamp(), time.monotonic()
            # the header leaves out the part of a second
            self._known = server + 0.5 - (sent + received) / 2, received + _CLOCK_AGE

    def now(self) -> float | None:
        """Return the server's time; None: no answer in the last minute."""
        (ahead, until), ours = self._known, time.monotonic()
        return ours + ahead if ours < until else None


def status_of(error: Any) -> str:
    """Return the name of the gRPC status behind an error of Google's libraries."""
    return error.grpc_status_code.name if error.grpc_status_code is not None else "UNKNOWN"


def first_line(error: object) -> str:
    """Return the first line of a message, as one sentence without a full stop, to be read after a colon."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return line.rstrip(". ")[:300]


# The system's clock ---------------------------------------------------------------------------------------------------


class SystemClock:
    """Implements `ports.Clock`."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
