"""Background loops: threads that continue after an unexpected error, and say so. Standard library and Python 3.8, as
this module travels with the agent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger(__name__)

#: seconds before a loop that failed is entered again: doubled after each error up to MAX_PAUSE; PAUSE again after a run
#: of STEADY seconds
PAUSE, MAX_PAUSE, STEADY = 1.0, 8.0, 60.0


class LoopFailure(NamedTuple):
    """The unexpected errors of one background loop of this process."""

    name: str
    errors: int  #: since the start of the process
    at: float  #: time of the newest one, in seconds since the epoch
    text: str  #: class and text of the newest one


_failures: dict[str, LoopFailure] = {}


def start_loop(
    name: str, run: Callable[[], object], first_pause: float = PAUSE
) -> threading.Thread:
    """Start a daemon thread that calls `run` until it returns. An unexpected error is logged and counted for
    `loop_failures`; after a pause `run` is called again, so it must continue from what it left."""

    def work() -> None:
        pause = first_pause
        while True:
            entered = time.monotonic()
            try:
                run()
            except Exception as error:  # a bug must not end what everything else waits for
                log.exception("the background loop %r failed; it continues", name)
                errors = _failures[name].errors + 1 if name in _failures else 1
                _failures[name] = LoopFailure(name, errors, time.time(), repr(error)[:200])
            else:
                return
            steady = time.monotonic() - entered >= STEADY
            time.sleep(first_pause if steady else pause)
            pause = first_pause if steady else min(pause * 2, MAX_PAUSE)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def loop_failures(since: float) -> list[LoopFailure]:
    """Return the loops of this process whose newest unexpected error came after `since`."""
    return [failure for failure in list(_failures.values()) if failure.at > since]
