"""Jobs that wait for each other, and a sweep, on four slices and real processes, with kills and preemptions."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.farm_rig import alive, until
from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]

ZONE, SLICES = "us-central2-b", 4
PROGRAM = "for i in $(seq 1 20); do sleep 0.1; done; echo done"
KILLS = 6


def tpu_job(stack: LocalStack, name: str, command: str = PROGRAM, **fields: Any) -> str:
    """Return a job of one host, without retries after a failure."""
    spec: dict[str, Any] = {
        "tpu": {"type": "v4-8", "zones": [ZONE]},
        "recovery": {"failures": 0},
        **fields,
    }
    return stack.create(name, command, **spec)


def test_ten_jobs_and_a_sweep_come_to_their_end_in_their_order(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    stack = LocalStack(tmp_path)
    try:
        stack.run("up")
        stack.run("emulator", "quota", ZONE, "v4", str(8 * SLICES))
        ids = {"a": tpu_job(stack, "a")}
        dependencies: dict[str, Any] = {"b": ["a"], "c": ["a"], "d": ["b", "c"]}
        for name, after in dependencies.items():
            ids[name] = tpu_job(stack, name, after=after)
        ids["e"] = tpu_job(stack, "e", "sleep 1; exit 3")
        ids["f"] = tpu_job(stack, "f", after=["e"])
        ids["g"] = tpu_job(stack, "g", after=[{"job": "e", "on": "failure"}])
        ids["h"] = tpu_job(stack, "h", after=[{"job": "f", "on": "end"}])
        ids["sweep"] = tpu_job(
            stack,
            "sweep",
            f"echo lr {{lr}} $TPUJOB_INDEX of $TPUJOB_COUNT; {PROGRAM}",
            matrix={"lr": ["1e-3", "3e-4", "1e-4"], "seed": list(range(8))},
            at_once=3,
        )
        ids["i"] = tpu_job(stack, "i", after=["sweep"])
        ids["j"] = tpu_job(stack, "j", after=["i"], priority="high")
        for number in range(KILLS):
            time.sleep(dice.uniform(1, 5))
            _kill(stack.ready("backend")["pid"])
            stack.run("list")  # any command starts the next backend
            if number % 2:
                held = stack.json("emulator", "status")["slices"]
                names = [row["name"] for row in held] or [""]
                stack.run("emulator", "preempt", dice.choice(names), "--notice", "1s", code=None)
        for job_id in ids.values():
            stack.run("wait", job_id, code=None, timeout=1200)
        _check(stack, ids, f"seed {seed}")
    finally:
        stack.down()


def _check(stack: LocalStack, ids: Mapping[str, str], context: str) -> None:
    views = {name: stack.job(job_id) for name, job_id in ids.items()}
    states = {name: view["state"] for name, view in views.items()}
    failed = {"e": "failed", "f": "cancelled"}
    assert states == {name: failed.get(name, "succeeded") for name in ids}, context
    assert views["f"]["cause"] == "DEPENDENCY", context
    rows = stack.json("list", "--all", "--group", "sweep")
    elements = [row for row in rows if row["name"].startswith("sweep-")]
    assert Counter(row["state"] for row in elements) == {"succeeded": 24}, context
    edges = [("b", "a"), ("c", "a"), ("d", "b"), ("d", "c"), ("g", "e"), ("i", "sweep"), ("j", "i")]
    for later, earlier in edges:
        first, before = views[later]["slices"][0]["requested_at"], views[earlier]
        # a slice is handed on as soon as the program has ended
        ended = before["attempts"][-1]["ended_at"] if before["attempts"] else before["finished_at"]
        assert first >= ended, f"{later} began before {earlier} ended; {context}"
    own = [view for name, view in views.items() if name != "sweep"]  # which sums its elements up
    jobs = [*own, *(stack.job(row["id"]) for row in elements)]
    billed = [entry["name"] for job in jobs for entry in job["slices"] if entry["ready_at"]]
    handed = len(billed) - len({*billed})
    print(f"{handed} of {len(billed)} slices were handed on; {context}")
    assert handed > 0, context
    assert stack.json("emulator", "status")["slices"] == [], context
    total = stack.json("cost", "report")["total"]["list_micros"]
    assert abs(total - sum(job["usd_spent"] for job in jobs) * 1e6) < len(billed), context


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the end of a killed backend")
