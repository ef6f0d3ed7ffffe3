"""Rules for every test."""

import gc
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.run import UNTIL

pytest.register_assert_rewrite("tests.support")

gc.disable()  # until everything is imported, of which nothing is garbage

# The machine may be busy: how long an example takes says nothing about the code. The same examples in every run.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background ignores Ctrl-C, and so would whatever it starts: a signal that is handled is not ignored
    # by a program that is started. (Not by a `preexec_fn`: that forks, which a process that has used JAX must not.)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: no garbage is to be collected among them."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    nightly = Path(__file__).parent / "nightly"
    for item in items:
        if nightly in item.path.parents:
            item.add_marker("nightly")


def pytest_runtest_setup() -> None:
    """A run with a limit begins no test after it: `python -m tests.run nightly --minutes 20`."""
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("NOT TESTED: the time of this run is over")
