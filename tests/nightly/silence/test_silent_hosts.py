"""Each host of a slice reports for itself, on real processes: when an agent hangs or is killed."""

import json
import os
import signal

import pytest

from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

COUNT = "for i in $(seq 1 600); do echo count $i; sleep 0.2; done"


def agent_of(stack: LocalStack, job_id: str, host: int) -> int:
    """The pid of its daemon."""
    records = stack.state.rglob(f"{job_id}-1/state.json")
    return json.loads(next(s for s in records if f"host-{host}" in str(s)).read_text())["pid"]


def test_a_host_whose_agent_hangs_is_told_from_those_that_report(stack: LocalStack) -> None:
    job_id = stack.create("silent", COUNT, recovery={"failures": 0})
    stack.until(job_id, "running")
    os.kill(agent_of(stack, job_id, 0), signal.SIGSTOP)
    stack.run("emulator", "silence", job_id, "--host", "0")
    view = stack.until(job_id, lambda v: v["attempt"] == 2)
    ended = view["attempts"][0]
    assert (ended["cause"], ended["host"]) == ("LOST_CONTACT", 0), ended["message"]
    stack.run("delete", job_id, "--yes")
    stack.until(job_id, lambda v: v["state"] in ("cancelled", "failed", "succeeded"))


def test_an_agent_that_is_killed_is_replaced_and_its_program_goes_on(stack: LocalStack) -> None:
    job_id = stack.create("killer", COUNT.replace("600", "150"), recovery={"failures": 0})
    stack.until(job_id, "running")
    os.kill(agent_of(stack, job_id, 1), signal.SIGKILL)
    view = stack.until(job_id, "succeeded")
    assert [a["cause"] for a in view["attempts"]] == [None], "the program was not started again"
    lines = stack.run("logs", job_id, "--host", "1").splitlines()
    counts = [line for line in lines if line.startswith("count ")]
    assert len(set(counts)) == len(counts), "no line twice"
    assert counts[-1] == "count 150"
    assert any("has taken over the program" in line for line in lines), lines
