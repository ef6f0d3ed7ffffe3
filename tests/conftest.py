"""What holds for every test."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """For a process that a test starts: a run in the background ignores Ctrl-C, and so would whatever it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
