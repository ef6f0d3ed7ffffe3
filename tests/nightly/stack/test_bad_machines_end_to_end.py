"""Hosts that hang or compute wrong numbers, with everything real, JAX included."""

import json

import pytest

from tests.support.local_stack import LocalStack
from tests.support.warm import IN_HASTE

pytestmark = pytest.mark.timeout(900)

PATIENT = 300.0  #: seconds until what JAX takes part in counts as stuck
PLAIN = {"preflight": False}
MLP = {
    "name": "digits",
    "tpu": {"type": "v4-16"},
    "run": {
        "workload": "mlp",
        "args": {"steps": 120, "checkpoint_every": 20},
        "env": {"XLA_FLAGS": IN_HASTE},
    },
}


def submit(stack: LocalStack, **changes: object) -> str:
    """Submit the bundled program on two hosts, and return the job's id."""
    file = stack.folder / "mlp.yaml"
    file.write_text(json.dumps({**MLP, **changes}))  # JSON is YAML
    return stack.json("create", str(file))["id"]


def test_a_hang_in_a_collective_is_ended_with_stacks_and_restarted(stack: LocalStack) -> None:
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
    stacks = "\n".join(line["text"] for line in view["attempts"][0]["evidence"])
    assert "engine/loop.py" in stacks or "fault_injection.py" in stacks, (
        f"what it was doing is kept:\n{stacks}"
    )
    assert view["attempts"][1]["resumed_from"] == 20


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
    assert (suspect["refused"], suspect["accusers"]) == (False, 1), "to whose job met it"
    stack.run("emulator", "break-host", "us-central2-b-h001", "--mend")
    stack.run("hosts", "clear", "us-central2-b-h001")


#: saves every ten steps and at SIGTERM; its loss is nan from step 45 on, on any host
BREAKS_AT_45 = """
import json, os, pathlib, signal, sys, time
events = open(os.environ["TPUJOB_OUT"] + "/events.jsonl", "a", buffering=1)
place, step, loss = pathlib.Path("checkpoints/place.json"), 0, 1.0
if place.exists():
    step = json.loads(place.read_text())["step"]
def save():
    place.write_text(json.dumps({"step": step, "loss": str(loss)}))
    events.write(json.dumps({"t": time.time(), "kind": "checkpoint", "step": step}) + chr(10))
def save_and_end(*_):
    save()
    sys.exit(75)
signal.signal(signal.SIGTERM, save_and_end)
print("from", step, flush=True)
while step < 1000:
    step += 1
    loss = float("nan") if step >= 45 else 1 / step
    print("step", step, "loss", loss, flush=True)
    if step % 10 == 0:
        save()
        time.sleep(2)
    time.sleep(0.05)
"""


def test_nothing_saved_after_a_nan_is_kept_so_that_the_maths_is_found(stack: LocalStack) -> None:
    job_id = stack.create(
        "nan-run",
        f"python3 -c '{BREAKS_AT_45}'",
        outputs=["checkpoints"],
        watch={"nonfinite": r"step (?P<step>\d+) loss nan"},
    )
    stack.run("wait", job_id, code=1, timeout=PATIENT)
    view = stack.job(job_id)
    assert [(a["cause"], a["verdict"]["step"]) for a in view["attempts"]] == [("NONFINITE", 45)] * 2
    assert "at step 45, as in attempt 1 on other hardware" in view["message"]
    machines = [set(a["physical"]) for a in view["attempts"]]
    assert not machines[0] & machines[1], f"not the same machines again: {machines}"
    assert "not yet" not in stack.run("why", job_id)
    assert "from 40" in stack.run("logs", job_id), "the newest checkpoint before the bad step"
    places = [json.loads(path.read_text()) for path in stack.state.rglob("place.json")]
    assert [place for place in places if place["step"] >= 45 or place["loss"] == "nan"] == []
