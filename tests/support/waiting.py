"""Waits for a condition, so that no test sleeps for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    state: str | Callable[[], str],
    seconds: float = 90,
    *,
    pause: float = 0.01,
) -> T:
    """Return the first true value of the condition. Fail after `seconds` with a message that names the state."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {state() if callable(state) else state}")
