"""Each host of a slice reports for itself, on real processes: when an agent hangs or is killed, when the network
between hosts is cut."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request

import pytest

from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

COUNT = "for i in $(seq 1 600); do echo count $i; sleep 0.2; done"


def finish(stack: LocalStack, job_id: str) -> None:
    stack.run("delete", job_id, "--yes")
    stack.until(job_id, lambda v: v["state"] in ("cancelled", "failed", "succeeded"))


def written(stack: LocalStack, job_id: str) -> dict[str, str]:
    """The hosts that have written a report for the newest attempt, and the generation of what they have written."""
    url = stack.json("emulator", "env")["STORAGE_EMULATOR_HOST"]
    found: dict[str, str] = {}
    with urllib.request.urlopen(f"{url}/storage/v1/b", timeout=10) as response:
        buckets = json.loads(response.read()).get("items", [])
    for bucket in buckets:
        with urllib.request.urlopen(f"{url}/storage/v1/b/{bucket['name']}/o", timeout=10) as answer:
            for blob in json.loads(answer.read()).get("items", []):
                if re.search(rf"\breports/{job_id}[^/]*/1/host-", blob["name"]):
                    found[blob["name"].rpartition("-")[2]] = blob["generation"]
    return found


def agent_of(stack: LocalStack, job_id: str, host: int) -> int:
    """The pid of its daemon."""
    found = stack.state.rglob(f"{job_id}-1/state.json")
    return json.loads(next(s for s in found if f"host-{host}" in str(s)).read_text())["pid"]


def test_a_host_whose_agent_hangs_is_told_from_those_that_report(stack: LocalStack) -> None:
    job_id = stack.create("silent", COUNT, recovery={"failures": 0})
    stack.until(job_id, "running")
    assert set(written(stack, job_id)) == {"0", "1"}
    os.kill(agent_of(stack, job_id, 0), signal.SIGSTOP)
    before = written(stack, job_id)
    stack.until(job_id, lambda v: written(stack, job_id)["1"] != before["1"])
    stack.run("emulator", "silence", job_id, "--host", "0")
    view = stack.until(job_id, lambda v: v["attempt"] == 2)
    ended = view["attempts"][0]
    assert (ended["cause"], ended["host"]) == ("LOST_CONTACT", 0), ended["message"]
    finish(stack, job_id)


def test_an_agent_that_is_killed_is_noticed_soon(stack: LocalStack) -> None:
    job_id = stack.create("killer", COUNT, recovery={"failures": 0})
    stack.until(job_id, "running")
    os.kill(agent_of(stack, job_id, 1), signal.SIGKILL)
    ended = stack.until(job_id, "failed")["attempts"][0]
    assert (ended["cause"], ended["host"]) == ("CRASH", 1)
    assert "something has killed its agent" in ended["message"]


def test_a_network_between_hosts_that_is_cut_ends_nothing(stack: LocalStack) -> None:
    job_id = stack.create("apart", COUNT)
    stack.until(job_id, "running")
    stack.run("emulator", "cut", job_id)
    for _ in range(3):
        before = written(stack, job_id)
        view = stack.until(
            job_id, lambda v, b=before: not written(stack, job_id).items() & b.items()
        )
        assert (view["state"], view["attempt"]) == ("running", 1)
    stack.run("emulator", "cut", job_id, "--off")
    finish(stack, job_id)
