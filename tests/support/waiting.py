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
    """Return the first true value of the condition. Fail after `seconds` with a message that names the state.

    The limit ends a test that has failed; it is no rule of the product. So it is far above what a busy machine needs.
    """
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        if value := condition():
            return value
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {state() if callable(state) else state}")
