"""Objects that others write beside the outputs of a job do not come to its next host."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_stack import LocalStack

pytestmark = pytest.mark.timeout(900)

PROGRAM = "ls -R out; date > out/date; echo 7 > out/weights; [ $TPUJOB_ATTEMPT = 2 ] || sleep 600"


def test_planted_objects_are_left_out_at_a_resume(stack: LocalStack, tmp_path: Path) -> None:
    job_id = stack.create("kept", PROGRAM, tpu={"type": "v4-8"}, outputs=["out"])
    stack.until(job_id, "running")
    stack.until(job_id, lambda _: list(stack.state.rglob(f"{job_id}-1/work/out/weights")))
    stack.run("cancel", job_id)
    stack.until(job_id, lambda v: v["state"] == "holding" and "held" in v["message"])
    endpoint = stack.json("emulator", "env")["STORAGE_EMULATOR_HOST"]

    def ask(path: str, body: bytes | None = None) -> Any:
        headers = {"Content-Type": "multipart/related; boundary=x"}
        request = urllib.request.Request(f"{endpoint}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def plant(name: str, data: bytes, **metadata: str) -> None:
        facts = json.dumps({"name": f"{folder}/out/{name}", "metadata": metadata}).encode()
        body = b"--x\r\nContent-Type: application/json\r\n\r\n%s\r\n--x\r\n\r\n%s\r\n--x--"
        ask(f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart", body % (facts, data))

    lists = [
        (bucket["name"], item["name"].removesuffix(".list"))
        for bucket in ask("/storage/v1/b")["items"]
        for item in ask(f"/storage/v1/b/{bucket['name']}/o").get("items", [])
        if re.search(rf"/jobs/{job_id}-\w+/outputs/host-0\.list$", item["name"])
    ]
    ((bucket, folder),) = lists
    (victim := tmp_path / "victim").mkdir()
    plant("a", b"", **{"tpujob-link": str(victim)})
    for n in range(40):
        plant(f"a-{n:03d}", b"x")
    plant("a/authorized_keys", b"ssh-ed25519 PLANTED")
    plant("weights", b"8\n")
    stack.run("resume", job_id)
    assert "succeeded" in stack.run("wait", job_id)
    log = stack.run("logs", job_id, "--attempt", "2")
    assert "outputs: 1 file," in log
    assert "outputs: left out, not as this host has listed them: 43 ('out/a', 'out/a-000'" in log
    assert "authorized_keys" not in log
    assert list(victim.iterdir()) == []


#: saves on host 0 alone, as most trainers in PyTorch do, and never ends by itself
ON_HOST_0 = """
import os, pathlib, time
saved, host = pathlib.Path("out/snapshot"), os.environ["TPUJOB_HOST"]
first = int(saved.read_text()) if saved.exists() else 0
if first:
    print("resuming from step", first, flush=True)
for step in range(first + 1, 100_000):
    time.sleep(0.1)
    print("step", step, flush=True)
    if step % 10 == 0:
        if host == "0":
            saved.write_text(str(step))
        print("saved step", step, flush=True)
"""
WATCH = {
    "progress": r"^step (?P<step>\d+)",
    "checkpoint": r"saved step (?P<step>\d+)",
    "resume": r"resuming from step (?P<step>\d+)",
}


def test_hosts_resume_from_the_same_step_if_host_0_saves_for_all(stack: LocalStack) -> None:
    code = stack.folder / "on-host-0"
    code.mkdir()
    (code / "train.py").write_text(ON_HOST_0)
    fields: dict[str, Any] = {"tpu": {"type": "v4-16"}, "code": str(code), "watch": WATCH}
    kept = {"folder": "out", "from": 0}
    jobs = {
        stack.create("shared", "python3 train.py", outputs=kept, **fields): True,
        stack.create("alone", "python3 train.py", outputs="out", **fields): False,
    }
    for job in jobs:
        stack.until(job, lambda view: (view["checkpoint"] or 0) >= 20)
        stack.run("emulator", "preempt", job, "--notice", "5s")
    for job, shared in jobs.items():
        view = stack.until(job, lambda view: view["attempt"] == 2 and view["step"] is not None)
        if not shared:
            view = stack.until(job, lambda view: view["warnings"])
        warned = view["warnings"]
        log = stack.run("logs", job, "--attempt", "2")
        resumed = dict(re.findall(r"(\d)\| resuming from step (\d+)", log))
        if shared:
            assert (len(resumed), len(set(resumed.values())), warned) == (2, 1, [])
            assert view["attempts"][1]["resumed_from"] == int(resumed["0"])
        else:
            assert list(resumed) == ["0"]
            text = f"host 0 resumed from step {resumed['0']}, host 1 from the beginning"
            assert warned[0] == f"the hosts train different steps: {text}"
            assert warned[0] in stack.run("why", job).replace("\n            ", " ")
        stack.run("delete", job, "--yes")
        stack.until(job, "cancelled")
