"""What one attempt on this host goes through, from its plan to its last report."""

from __future__ import annotations

import os
import signal
import traceback
from typing import Optional

from tpujob.agent.attempt import Attempt
from tpujob.agent.base import Failure, Record, Stopped
from tpujob.agent.commands import run_program
from tpujob.agent.ending import blame_memory, finish
from tpujob.agent.processes import end_all, family, free_devices, kernel_kills
from tpujob.agent.setup.bundles import fetch
from tpujob.agent.setup.steps import (
    check,
    fetch_compiled,
    furnish,
    meet_machine,
    prepare,
    take_over,
)


class Daemon:
    """What the detached process does."""

    def __init__(self, plan: Record, folder: str) -> None:
        self._attempt = Attempt(plan, folder)
        self.save = self._attempt.save

    def run(self) -> None:
        """Runs to the end of the attempt, whatever happens."""
        attempt = self._attempt
        attempt.open()
        kills = kernel_kills()
        code = _exit_code(attempt)
        blame_memory(attempt, code, kernel_kills() - kills)
        finish(attempt, code)


def _exit_code(attempt: Attempt) -> Optional[int]:
    """Of its program; None when it had no chance, and the record says why. Raises nothing."""
    try:
        return _live(attempt)
    except Stopped:
        return -signal.SIGTERM
    except Failure as failure:
        attempt.state.update(error=str(failure)[:500], cause=failure.cause)
    except Exception as error:  # a mistake here must not leave a program without its keeper
        traceback.print_exc()
        end_all(lambda: family(attempt.folder), attempt.plan["grace"])
        attempt.state.update(error="the agent failed: %r" % error, cause="CRASH")
    return None


def _live(attempt: Attempt) -> int:
    """Every step up to the program's end; returns its exit code."""
    plan = attempt.plan
    os.makedirs(attempt.out, exist_ok=True)
    attempt.aside(lambda: meet_machine(attempt))
    attempt.aside(lambda: take_over(attempt), whole=True)
    bundles = attempt.aside(lambda: [fetch(attempt.storage, b) for b in plan["bundles"]])
    furnish(attempt, bundles)
    prepare(attempt, bundles)
    attempt.phase("clearing")
    attempt.aside(lambda: free_devices(plan["grace"]), whole=True)
    if plan.get("preflight"):
        check(attempt)
        fetch_compiled(attempt)
    return run_program(attempt)
