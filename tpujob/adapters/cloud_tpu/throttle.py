"""How fast a project's API may be called: a token bucket."""

import threading
import time
from collections.abc import Callable

from tpujob.errors import Transient

#: calls a minute of one backend in a project. Google publishes no figure for this API; similar APIs allow from 60 a
#: minute and user, most 600.
CALLS_PER_MINUTE = 600.0
#: the share of a minute's calls that may be made at once
AT_ONCE = 0.1
#: seconds that the cloud may make us wait; a longer demand is taken for a mistake
LONGEST_PAUSE = 900.0


class Throttle:
    """Allows no more calls in any minute than agreed. Threads may share it; those of one project should."""

    def __init__(
        self,
        per_minute: float = 0.0,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`per_minute`: 0: no limit but the pauses that the cloud asks for."""
        at_once = max(1.0, per_minute * AT_ONCE)
        self._gap = 60 / max(per_minute - at_once, 1.0) if per_minute else 0.0
        self._ahead = (at_once - 1) * self._gap  # seconds that calls may run ahead of the rate
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._booked = now()  # the rate is used up until then

    def take(self, at_most: float) -> None:
        """Wait until one more call is allowed. Raises Transient at once, and takes nothing, when that is more than
        `at_most` seconds away."""
        with self._lock:
            now = self._now()
            booked = max(self._booked, now)
            wait = booked - self._ahead - now
            if wait > at_most:
                raise Transient(f"Cloud TPU may be asked again in {wait:.0f} s: too many calls")
            self._booked = booked + self._gap
        if wait > 0:
            self._sleep(wait)

    def pause(self, seconds: float) -> None:
        """Allow no call for that long, and no burst afterwards."""
        with self._lock:
            until = self._now() + min(seconds, LONGEST_PAUSE) + self._ahead
            self._booked = max(self._booked, until)
