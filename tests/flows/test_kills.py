"""The backend is killed again and again, at moments that nobody chose, from before a job has a slice until it ends."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.flows.local_stack import LocalStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 20
PROGRAM = "echo started; for i in $(seq 1 150); do sleep 0.1; done; echo finished"


def test_twenty_kills_at_random_lose_nothing_start_nothing_twice_and_leak_nothing(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    stack = LocalStack(tmp_path)
    try:
        stack.run("up")
        job_id = stack.create("hunted", PROGRAM)
        for number in range(KILLS):
            time.sleep(dice.uniform(0, 0.4))
            with contextlib.suppress(ProcessLookupError):
                os.kill(stack.ready("backend")["pid"], signal.SIGKILL)
            if number == KILLS // 3:
                stack.run("emulator", "preempt", job_id, "--notice", "1s", code=None)
            stack.run("list")  # any command starts the next backend
        stack.run("wait", job_id)
        said = f"seed {seed}\n{stack.run('events', job_id)}"
        view = stack.job(job_id)
        assert view["state"] == "succeeded", said
        for attempt in range(1, view["attempt"] + 1):
            log = stack.run("logs", job_id, "--attempt", str(attempt))
            assert log.count("started") == 2, f"attempt {attempt}: once on each host\n{log}{said}"
        assert stack.run("logs", job_id).count("finished") == 2, said
        kinds = Counter(event["kind"] for event in stack.json("events", job_id))
        assert kinds["slice_requested"] == kinds["slice_gone"] == len(view["slices"]), said
        assert stack.json("emulator", "status")["slices"] == [], said
    finally:
        stack.down()
