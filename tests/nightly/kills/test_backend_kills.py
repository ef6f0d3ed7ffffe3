"""The backend is killed again and again, at random moments, from before a job has a slice until it ends."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.farm_rig import alive, until
from tests.support.local_stack import LocalStack

pytestmark = pytest.mark.timeout(900)

#: tests/bench/README.md has more
KILLS = int(os.environ.get("TPUJOB_KILLS", "5"))
SECONDS = 8.0  #: between them, together
PROGRAM = "echo host $TPUJOB_HOST started; for i in $(seq 1 150); do sleep 0.1; done; echo finished"


def test_kills_at_random_lose_nothing_start_nothing_twice_and_leak_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    stack = LocalStack(tmp_path)
    try:
        stack.run("up")
        job_id = stack.create("hunted", PROGRAM)
        for number in range(KILLS):
            time.sleep(dice.uniform(0, SECONDS / KILLS))
            _kill(stack.ready("backend")["pid"])
            if number == KILLS // 3:
                stack.run("emulator", "preempt", job_id, "--notice", "1s", code=None)
            stack.run("list")  # any command starts the next backend
        stack.run("wait", job_id)
        history = f"seed {seed}\n{stack.run('events', job_id)}"
        view = stack.job(job_id)
        assert view["state"] == "succeeded", history
        for attempt in view["attempts"]:
            log = stack.run("logs", job_id, "--attempt", str(attempt["number"]))
            on_each = [log.count(f"host {host} started") for host in range(2)]
            # an attempt whose slice was taken while it was being started may have started nowhere
            least = 1 if attempt["running_at"] else 0
            assert all(least <= n <= 1 for n in on_each), f"{attempt}: once a host\n{log}{history}"
        assert stack.run("logs", job_id).count("finished") == 2, history
        kinds = Counter(event["kind"] for event in stack.json("events", job_id))
        assert kinds["slice_requested"] == kinds["slice_gone"] == len(view["slices"]), history
        assert stack.json("emulator", "status")["slices"] == [], history
    finally:
        stack.down()


def _kill(pid: int) -> None:
    """Afterwards the process is gone: on a busy machine it outlives the signal, and its port, for a moment."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the end of a killed backend")
