"""The emulator's faults against everything real: processes, SSH, storage, and JAX where the story needs it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENT = 300.0  #: seconds until what JAX takes part in counts as stuck
COUNT = "for i in $(seq 1 600); do echo count $i; sleep 0.2; done"
PLAIN = {"preflight": False}
MLP = {
    "name": "digits",
    "tpu": {"type": "v4-16"},
    "run": {"workload": "mlp", "args": {"steps": 120, "checkpoint_every": 20}},
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    local = LocalStack(tmp_path_factory.mktemp("faults"))
    local.run("up")
    yield local
    left = local.json("emulator", "status")["slices"]
    local.down()
    assert left == [], f"no story may leave a slice behind: {left}"


def submit(stack: LocalStack, **changes: object) -> str:
    """The bundled program on two hosts; the job's id."""
    file = stack.folder / "mlp.yaml"
    file.write_text(json.dumps({**MLP, **changes}))  # JSON is YAML
    return stack.json("create", str(file))["id"]


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


def test_a_stockout_leads_to_the_next_zone_at_once(stack: LocalStack) -> None:
    stack.run("emulator", "stockout", "us-east5-b", "v6e", "--fail")
    tpu = {"type": "v6e-8", "zones": ["us-east5-b", "us-east5-a"]}
    job_id = stack.create("moved", "echo there", tpu=tpu, **PLAIN)
    stack.run("wait", job_id)
    view = stack.job(job_id)
    assert [s["zone"] for s in view["slices"]] == ["us-east5-b", "us-east5-a"]
    assert view["spent"] == {}, "a stockout is no failure of the job"
    stack.run("emulator", "stockout", "us-east5-b", "v6e", "--off")


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


def test_a_hang_in_a_collective_is_ended_with_its_stacks_and_started_again(
    stack: LocalStack,
) -> None:
    """Real JAX: host 1 never gets beyond a step, and host 0 waits for it in an all-reduce."""
    stack.run("emulator", "break-host", "us-central2-b-h001", "--fault", "hang:step=30")
    recovery = {"stall": "8s", "on_bad_host": "release"}
    job_id = submit(stack, name="stuck", recovery=recovery, **PLAIN)
    stack.until(job_id, "running")
    stack.run("emulator", "break-host", "us-central2-b-h001", "--mend")
    stack.run("wait", job_id, timeout=PATIENT)
    view = stack.job(job_id)
    assert view["state"] == "succeeded"
    assert [a["cause"] for a in view["attempts"]] == ["HANG", None]
    assert len(view["slices"]) == 1, "the slice is not to blame"
    stacks = "\n".join(view["attempts"][0]["evidence"])
    assert "engine/loop.py" in stacks or "fault_injection.py" in stacks, (
        f"what it was doing is kept:\n{stacks}"
    )
    assert view["attempts"][1]["resumed_from"] == 20


def test_any_program_that_prints_nan_is_tried_on_other_hardware_and_then_it_is_the_maths(
    stack: LocalStack,
) -> None:
    command = (
        "for i in $(seq 1 100); do echo step $i loss=$([ $i = 7 ] && echo nan || echo 1); done"
    )
    job_id = stack.create(
        "diverges",
        f"{command}; sleep 60",
        watch={"nonfinite": r"step (?P<step>\d+) loss=nan"},
        **PLAIN,
    )
    view = stack.until(job_id, "failed")
    assert view["cause"] == "NONFINITE"
    assert [a["cause"] for a in view["attempts"]] == ["NONFINITE", "NONFINITE"]
    assert "at step 7, as in attempt 1 on other hardware" in view["message"]
    machines = [set(a["physical"]) for a in view["attempts"]]
    assert not machines[0] & machines[1], f"not the same machines again: {machines}"


def test_a_bad_host_is_found_swapped_and_remembered(stack: LocalStack) -> None:
    """The whole of it with real JAX: one bad machine of two, a replay that names it, another slice, success."""
    stack.run("emulator", "break-host", "us-central2-b-h001", "--fault", "nan:step=50,device=1")
    job_id = submit(stack)
    stack.run("wait", job_id, timeout=PATIENT)
    view = stack.job(job_id)
    assert view["state"] == "succeeded"
    first, second = view["attempts"]
    assert (first["cause"], first["host"]) == ("BAD_HOST", 1)
    assert first["verdict"]["blame"] == "device"
    assert second["resumed_from"] == 40, "the newest checkpoint before the verdict"
    assert "us-central2-b-h001" not in second["physical"]
    (suspect,) = stack.json("hosts")
    assert suspect["physical"] == "us-central2-b-h001"
    assert suspect["refused"]
    stack.run("emulator", "break-host", "us-central2-b-h001", "--mend")
    stack.run("hosts", "clear", "us-central2-b-h001")


@pytest.mark.parametrize("phase", ["provisioning", "preparing", "running", "holding", "releasing"])
def test_a_slice_is_preempted_in_each_phase(stack: LocalStack, phase: str) -> None:
    setup = "sleep 3" if phase == "preparing" else None
    job_id = stack.create(f"in-{phase}", COUNT, setup=setup, **PLAIN)
    if phase in ("holding", "releasing"):
        stack.until(job_id, "running")
        words = ["--release"] if phase == "releasing" else []
        stack.run("cancel", job_id, *words)
    stack.until(job_id, phase if phase != "releasing" else lambda v: v["wish"] == "release")
    stack.run("emulator", "preempt", job_id, "--notice", "1s", code=None)
    if phase in ("holding", "releasing"):
        view = stack.until(job_id, "cancelled")
    else:
        view = stack.until(job_id, lambda v: v["state"] == "running" and len(v["slices"]) >= 1)
        finish(stack, job_id)
        view = stack.job(job_id)
    assert all(s["gone_at"] for s in view["slices"])
