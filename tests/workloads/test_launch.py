"""Which exit code an exception gets."""

from __future__ import annotations

import pytest

from workloads.contract import Exit
from workloads.frame.config import ConfigError
from workloads.frame.launch import code_of

GLOO = "UNKNOWN: Gloo all-reduce failed: Read error [127.0.0.1]:1: Connection reset by peer"


@pytest.mark.parametrize(
    ("error", "hosts", "code"),
    [
        (ConfigError("batch=3"), 2, Exit.CONFIG),
        (RuntimeError(GLOO), 2, Exit.PEER),
        (RuntimeError(GLOO), 1, Exit.ERROR),
        (RuntimeError("DEADLINE_EXCEEDED: Barrier timed out"), 4, Exit.PEER),
        (TimeoutError("Timed out while waiting for async_write_complete barrier."), 2, Exit.PEER),
        (RuntimeError("RESOURCE_EXHAUSTED: out of memory"), 2, Exit.ERROR),
        (ValueError("a barrier of its own"), 2, Exit.ERROR),
        (KeyboardInterrupt(), 1, Exit.ERROR),
    ],
)
def test_code(error: BaseException, hosts: int, code: Exit) -> None:
    assert code_of(error, hosts) is code
