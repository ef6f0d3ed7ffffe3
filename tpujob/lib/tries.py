"""The tries of a call: the time that they have, and the pauses between them."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from tpujob.errors import Transient


class Deadline:
    """The moment by which a call must return, however many requests it makes."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        late: str = "no answer in time",
        hint: str = "",
    ) -> None:
        """`late`, `hint`: the message of the error after the deadline, and what a person can do."""
        self._clock, self._at, self._late, self._hint = clock, clock() + seconds, late, hint

    def remaining(self) -> float:
        """Return the seconds until the deadline; 0 when it has passed."""
        return max(0.0, self._at - self._clock())

    def left(self, limit: float = math.inf, *, doing: str = "") -> float:
        """Return the seconds until the deadline, at most `limit`. Raises Transient when it has passed."""
        remaining = self.remaining()
        if not remaining:
            raise Transient(f"{doing}: {self._late}" if doing else self._late, hint=self._hint)
        return min(limit, remaining)


class Backoff(NamedTuple):
    """Exponential backoff: the pause doubles with each failure."""

    first: float  #: seconds
    longest: float  #: seconds

    def pause(self, failures: int, chance: float = 0.5) -> float:
        """Return the seconds to pause after so many failures. `chance`, from 0 to 1, makes them up to a quarter less or
        more, so that callers that failed together do not retry together."""
        plain = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return plain * (0.75 + 0.5 * chance)
