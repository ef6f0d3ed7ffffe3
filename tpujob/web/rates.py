"""How often something may be done. Pure: `now` is an argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    burst: int  #: at once, after a pause


class Buckets:
    """How often each of many keys may do something: `burst` times, and then as often as `per_second` gives tokens back.
    Those that are full, or beyond `most` and longest unused, are forgotten."""

    def __init__(self, rate: Rate, most: int = 10_000) -> None:
        self._rate, self._most = rate, most
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, and when

    def wait(self, key: Hashable, now: float) -> float:
        """Takes a token and returns 0, or takes none and returns the seconds until there is one."""
        tokens, at = self._left.pop(key, (float(self._rate.burst), now))
        tokens = min(tokens + (now - at) * self._rate.per_second, self._rate.burst)
        missing = 1 - tokens
        self._left[key] = (tokens - 1 if missing <= 0 else tokens, now)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return max(missing, 0.0) / self._rate.per_second
