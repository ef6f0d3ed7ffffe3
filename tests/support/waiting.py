"""Waits for a condition, with one bound for all tests, so that none sleeps for a time or fails on a busy machine."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: seconds for what takes an instant: ends a test that has failed, and is far above what a busy machine needs
LONG = 90.0


def until(
    condition: Callable[[], T],
    state: str | Callable[[], str],
    seconds: float = LONG,
    *,
    pause: float = 0.01,
) -> T:
    """Return the first true value of the condition. Fail after `seconds` with a message that names the state."""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        if value := condition():
            return value
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {state() if callable(state) else state}")
