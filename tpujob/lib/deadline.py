"""The deadline of a call."""

import math
import time
from collections.abc import Callable

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
