"""How fast a bucket may be written to: Cloud Storage spreads a bucket over more servers as it sees more requests, and
refuses what comes faster than it can spread. The rule is pure; `RateLimit` waits by it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

#: writes a second that any bucket takes: about 1,000 (documented), less a margin
FIRST = 800.0
#: seconds in which the rate may double (documented)
DOUBLING = 20 * 60.0
_SLOWEST = 10.0
#: seconds before a rate that was cut grows again, and for which further refusals do not cut it again
_CALM = 10.0


@dataclass(frozen=True, slots=True)
class WritePace:
    """The rule for one bucket. Times are seconds of one clock."""

    rate: float  #: writes a second, at `since`
    since: float
    cut: float = float("-inf")  #: when it was cut last
    free: float = 0.0  #: when the next write may be sent

    def at(self, now: float) -> float:
        """Writes a second: at most twice as many after each 20 minutes, evenly."""
        return self.rate * 2 ** (max(0.0, now - self.since) / DOUBLING)

    def slot(self, now: float) -> tuple[float, WritePace]:
        """When one more write may be sent, and the pace after it. Time in which nothing was sent is not saved up."""
        begin = max(now, self.free)
        return begin, replace(self, free=begin + 1 / self.at(now))

    def slower(self, now: float) -> WritePace:
        """After a refusal: half the rate, which grows again from there."""
        if now - self.cut < _CALM:
            return self
        half = max(_SLOWEST, self.at(now) / 2)
        return replace(self, rate=half, since=now + _CALM, cut=now)


class RateLimit:
    """Paces the writes to each bucket. Threads share it."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._paces: dict[str, WritePace] = {}
        self._lock = threading.Lock()

    def wait(self, bucket: str) -> None:
        """Return when one more write may be sent to that bucket."""
        with self._lock:
            now = self._clock()
            begin, self._paces[bucket] = self._pace(bucket, now).slot(now)
        if begin > now:
            # jitter, so that several machines that began together do not stay in step
            self._sleep((begin - now) * (1 + 0.1 * self._chance()))

    def slow_down(self, bucket: str) -> None:
        """The bucket has refused a write because it is busy."""
        with self._lock:
            now = self._clock()
            self._paces[bucket] = self._pace(bucket, now).slower(now)

    def _pace(self, bucket: str, now: float) -> WritePace:
        return self._paces.get(bucket) or WritePace(FIRST, now)
