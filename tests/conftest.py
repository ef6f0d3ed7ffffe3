"""What holds for every test."""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support")

gc.disable()  # until everything is imported, of which nothing is garbage

# The machine may be busy: how long an example takes says nothing about the code. The same examples in every run.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background ignores Ctrl-C, and so would whatever it starts: a signal that is handled is not ignored
    # by a program that is started. (Not by a `preexec_fn`: that forks, which a process that has used JAX must not.)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: nobody need look for garbage among them."""
    gc.freeze()
    gc.enable()
