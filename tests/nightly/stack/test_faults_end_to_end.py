"""The emulator's faults against everything real: processes, SSH and storage."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.farm_rig import until
from tests.support.local_stack import LocalStack

pytestmark = pytest.mark.timeout(900)

COUNT = "for i in $(seq 1 600); do echo count $i; sleep 0.2; done"
PLAIN = {"preflight": False}


def finish(stack: LocalStack, job_id: str) -> None:
    stack.run("delete", job_id, "--yes")
    stack.until(job_id, lambda v: v["state"] in ("cancelled", "failed", "succeeded"))


def test_a_silent_slice_that_is_still_called_ready_is_replaced(stack: LocalStack) -> None:
    job_id = stack.create("silent", COUNT, **PLAIN)
    stack.until(job_id, "running")
    stack.run("emulator", "silence", job_id)
    view = stack.until(job_id, lambda v: v["state"] == "running" and v["attempt"] == 2)
    first = view["attempts"][0]
    assert (first["outcome"], first["cause"]) == ("interrupted", "LOST_CONTACT")
    assert "does not answer over SSH" in first["message"]
    finish(stack, job_id)


def test_a_host_out_of_memory_is_named_and_tried_again_once(stack: LocalStack) -> None:
    eater = "exec python3 -c 'import time; print(1, flush=True); time.sleep(600)'"
    job_id = stack.create("hungry", eater, **PLAIN)
    for attempt in (1, 2):
        stack.until(job_id, lambda v, n=attempt: v["state"] == "running" and v["attempt"] == n)
        stack.run("emulator", "oom", job_id, "--host", "1")
    view = stack.until(job_id, "failed")
    assert view["cause"] == "OOM_HOST", view["message"]
    assert view["attempts"][1]["host"] == 1
    assert len(view["attempts"]) == 2


def test_a_deadline_falls_back_to_on_demand_where_there_is_no_spot(stack: LocalStack) -> None:
    spot = ("emulator", "quota", "us-central2-b", "v4")
    stack.run(*spot, "0", "--pricing", "spot")
    try:
        finish_by = datetime.fromtimestamp(time.time() + 3 * 3600, UTC).isoformat()
        tpu = {"type": "v4-16", "pricing": ["spot", "on-demand"]}
        job_id = stack.create(
            "due", "echo count; sleep 20", tpu=tpu, time="2m", finish_by=finish_by
        )
        view = stack.until(job_id, "running")
        assert [s["pricing"] for s in view["slices"]][-1] == "on-demand"
        assert view["deadline"]["latest"] is None, "it has what the net asks for"
        assert "; on demand; $" in stack.run("why", job_id)
        view = stack.until(job_id, "succeeded")
        assert not view["deadline"]["missed"]
        assert len(view["attempts"]) == 1
    finally:
        stack.run(*spot, "none", "--pricing", "spot")


@pytest.mark.parametrize("phase", ["provisioning", "preparing", "running", "holding", "releasing"])
def test_a_slice_is_lost_in_each_phase(stack: LocalStack, phase: str, tmp_path: Path) -> None:
    flag = tmp_path / "flag"  #: ends the set-up
    setup = f"until [ -e {flag} ]; do sleep 0.1; done" if phase == "preparing" else None
    if phase == "provisioning":  # takes long enough to be seen
        stack.run("emulator", "settings", "--create", "20s")
    job_id = stack.create(f"in-{phase}", COUNT, setup=setup, **PLAIN)
    if phase in ("holding", "releasing"):
        stack.until(job_id, "running")
        stack.run("cancel", job_id, *(["--release"] if phase == "releasing" else []))
    stack.until(job_id, phase if phase != "releasing" else lambda v: v["desired"] == "release")
    slices = 2
    if phase == "provisioning":
        # by a person: what is not there as yet is not preempted, and is asked for by the same name
        words = ("emulator", "delete", job_id)
        until(lambda: "deleted" in stack.run(*words, code=None), "it is deleted")
        stack.run("emulator", "settings", "--create", "2s")
        slices = 1
    else:
        code = None if phase == "releasing" else 0  # it may be gone by now
        stack.run("emulator", "preempt", job_id, "--notice", "1s", code=code)
    if phase in ("holding", "releasing"):
        view = stack.until(job_id, "cancelled")
    else:
        stack.until(job_id, lambda v: len(v["slices"]) == slices)
        flag.touch()
        stack.until(job_id, lambda v: v["state"] == "running" and len(v["slices"]) == slices)
        finish(stack, job_id)
        view = stack.job(job_id)
        assert len(view["slices"]) == slices
    assert all(s["gone_at"] for s in view["slices"])
