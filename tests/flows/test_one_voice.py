"""The hosts of a slice speak with one voice, on real processes: when the one that speaks is killed, when the network
between them is cut. `make voice` runs these, as they wait for silence."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request

import pytest

from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.slow, pytest.mark.voice, pytest.mark.timeout(900)]

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
                if f"/reports/{job_id}/1/host-" in "/" + blob["name"]:
                    found[blob["name"].rpartition("-")[2]] = blob["generation"]
    return found


def test_one_host_speaks_for_all_and_the_next_when_its_agent_and_then_its_host_is_killed(
    stack: LocalStack,
) -> None:
    job_id = stack.create("voices", COUNT, recovery={"failures": 0})
    stack.until(job_id, "running")
    assert set(written(stack, job_id)) == {"0"}
    first = next(s for s in stack.state.rglob(f"{job_id}-1/state.json") if "host-0" in str(s))
    os.kill(json.loads(first.read_text())["pid"], signal.SIGKILL)
    stack.until(job_id, lambda v: set(written(stack, job_id)) == {"0", "1"})
    before = written(stack, job_id)["1"]
    stack.until(job_id, lambda v: written(stack, job_id)["1"] != before)
    stack.run("emulator", "silence", job_id, "--host", "0")
    view = stack.until(job_id, lambda v: v["attempt"] == 2)
    ended = view["attempts"][0]
    assert (ended["cause"], ended["host"]) == ("LOST_CONTACT", 0), ended["message"]
    finish(stack, job_id)


def test_a_network_between_hosts_that_is_cut_ends_nothing(stack: LocalStack) -> None:
    job_id = stack.create("apart", COUNT)
    stack.until(job_id, "running")
    stack.run("emulator", "cut", job_id)
    view = stack.until(job_id, lambda v: set(written(stack, job_id)) == {"0", "1"})
    assert view["state"] == "running"
    stack.run("emulator", "cut", job_id, "--off")

    def only_host_0(_: object) -> bool:
        before = written(stack, job_id)
        time.sleep(5)
        after = written(stack, job_id)
        return before["1"] == after["1"] and before["0"] != after["0"]

    assert stack.until(job_id, only_host_0)["attempt"] == 1
    finish(stack, job_id)
