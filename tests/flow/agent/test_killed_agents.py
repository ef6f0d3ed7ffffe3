"""An agent that is killed while its program lives: a start of the same attempt takes the program over."""

import os
import signal
from typing import Any

import pytest

from tests.flow.agent.test_outputs import names
from tests.support.agent_host import Host, starts, until

#: records its start; prints, saves and reports a step for each file of `go` that appears; ends as the last one says
PROGRAM = """
import json, os, pathlib, signal, sys, time
home, folder = pathlib.Path(os.environ["HOME"]), pathlib.Path("ckpt")
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), sys.exit(75)))
with open(home / "starts", "a") as f: f.write(os.environ["TPUJOB_ATTEMPT"] + "\\n")
events = open(os.environ["TPUJOB_OUT"] + "/events.jsonl", "a", buffering=1)
folder.mkdir(exist_ok=True)
print("from", sorted(p.name for p in folder.iterdir()), flush=True)
step = 0
while True:
    step += 1
    while not (home / ("go%d" % step)).exists(): time.sleep(0.02)
    (folder / str(step)).write_text("weights of %d" % step)
    events.write(json.dumps({"kind": "step", "step": step}) + "\\n")
    events.write(json.dumps({"kind": "checkpoint", "step": step}) + "\\n")
    print("step", step, os.environ.get("FILL", "") * 20000, flush=True)
    (home / ("did%d" % step)).touch()
    end = (home / ("go%d" % step)).read_text()
    if end.startswith("-"): os.kill(os.getpid(), -int(end))
    if end: sys.exit(int(end))
"""


class Rig:
    """A program that has made its first step, and whose agent was killed then."""

    def __init__(self, host: Host, **changes: Any) -> None:
        self.host, self.changes = host, {"outputs": ["ckpt"], **changes}
        self.pid = self.start()["pid"]
        until(lambda: starts(host), "the start of the program")
        self.step(1)
        until(lambda: host.bucket.report().get("checkpoint") == 1, "the first checkpoint")
        self.kill(self.pid)

    def start(self, attempt: int = 1) -> dict[str, Any]:
        return self.host.start(["python3", "-c", PROGRAM], attempt=attempt, **self.changes)

    def kill(self, agent: int) -> None:
        """Kill the agent with all of its threads: one that is in a read of the output takes what comes while it dies,
        after the main thread has no environment any more."""
        os.kill(agent, signal.SIGKILL)
        until(lambda: _threads(agent) <= {str(agent)}, "the end of the agent's threads")
        until(lambda: agent not in self.host.processes(), "the end of the agent")

    def step(self, step: int, end: str = "") -> None:
        new = self.host.home / "new"
        new.write_text(end)
        new.rename(self.host.home / f"go{step}")
        until(lambda: (self.host.home / f"did{step}").exists(), f"step {step}")

    def ends_alone(self, end: str) -> None:
        """Let the program make two steps and end without an agent."""
        self.step(2)
        self.step(3, end)
        until(lambda: not self.host.processes(), "the end of the program and its launcher")


def _threads(pid: int) -> set[str]:
    try:
        return {*os.listdir(f"/proc/{pid}/task")}
    except FileNotFoundError:
        return set()


@pytest.mark.parametrize("code", ["0", "3", "75", "-9", "-6"])
def test_a_program_that_ended_without_its_agent_has_ended_so(host: Host, code: str) -> None:
    rig = Rig(host)
    rig.ends_alone(code)
    assert rig.start()["state"] == "already", "a start that fails elsewhere does not stop it"
    report = host.ended()
    assert (report["exit_code"], report["step"], report["checkpoint"]) == (int(code), 3, 3)
    assert (report["cause"], report["signalled"]) == (None, False)
    assert 0 < report["ran"] < 60
    assert starts(host) == ["1"]
    assert names(host) == {f"ckpt/{n}": b"weights of %d" % n for n in (1, 2, 3)}
    log = [line.strip() for line in host.bucket.log()]
    assert log[-3:] == [
        "[tpujob] the agent was killed; this one has taken over the program",
        "step 2",
        "step 3",
    ]
    assert rig.start()["state"] == "already"


def test_a_program_that_runs_on_is_supervised_again(host: Host) -> None:
    rig = Rig(host)
    rig.step(2)
    pid = rig.start()["pid"]
    assert pid != rig.pid
    assert host.phase("running")["attempt"] == 1
    rig.step(3)
    until(lambda: host.bucket.report().get("checkpoint") == 3, "the checkpoint after the takeover")
    rig.step(4, "0")
    assert host.ended()["exit_code"] == 0
    assert starts(host) == ["1"]
    lines = [line.strip() for line in host.bucket.log()]
    assert [line for line in lines if line.startswith("step")][-3:] == [
        "step 2",
        "step 3",
        "step 4",
    ]


def test_a_program_is_taken_over_as_often_as_its_agent_is_killed(host: Host) -> None:
    rig = Rig(host)
    for step in (2, 3):
        pid = rig.start()["pid"]
        host.phase("running")
        rig.kill(pid)
        rig.step(step)
    rig.start()
    rig.step(4, "0")
    assert (host.ended()["exit_code"], starts(host)) == (0, ["1"])
    assert sorted(names(host)) == ["ckpt/1", "ckpt/2", "ckpt/3", "ckpt/4"]


def test_output_without_an_agent_ends_no_program_and_waits_for_the_next_agent(host: Host) -> None:
    fill = "x" * 100  # 2 MB a step, more than the pipe holds
    rig = Rig(host, env={"FILL": fill})
    (host.home / "go2").touch()
    (host.home / "go3").write_text("0")
    rig.start()
    assert host.ended()["exit_code"] == 0
    printed = "".join(line for line in host.bucket.log() if not line.startswith("[tpujob]"))
    assert printed.count(fill) >= 2 * 20_000
    assert "step 3" in printed


def test_a_program_that_was_taken_over_is_stopped_as_any_other(host: Host) -> None:
    rig = Rig(host)
    rig.start()
    host.phase("running")
    assert host.agent("stop", "--grace", 5)["stopped"][0]["exit_code"] == 75
    assert host.ended()["exit_code"] == 75
    assert "told" in host.bucket.log()
    until(lambda: not host.processes(), "the end of all processes")


def test_a_program_that_was_killed_with_its_agent_has_not_succeeded(host: Host) -> None:
    rig = Rig(host)
    rig.step(2)
    for pid in host.processes():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not host.processes(), "the end of all processes")
    rig.start()
    report = host.ended()
    assert (report["exit_code"], report["checkpoint"]) == (-9, 2)
    assert "ckpt/2" in names(host)


def test_the_next_attempt_resumes_from_what_was_saved_without_an_agent(host: Host) -> None:
    rig = Rig(host)
    rig.ends_alone("1")
    rig.start()
    host.ended()
    for n in range(1, 4):
        (host.home / f"go{n}").unlink()
        (host.home / f"did{n}").unlink()
    rig.start(attempt=2)
    until(lambda: "2" in starts(host), "the second attempt")
    rig.step(1, "0")
    assert host.ended(2)["exit_code"] == 0
    assert "from ['1', '2', '3']" in host.bucket.log(2)


def test_a_stop_without_an_agent_loses_no_checkpoint(host: Host) -> None:
    rig = Rig(host)
    rig.step(2)
    host.agent("stop", "--grace", 5)
    (host.home / "go1").unlink()
    rig.start(attempt=2)
    until(lambda: "2" in starts(host), "the second attempt")
    rig.step(1, "0")
    assert host.ended(2)["exit_code"] == 0
    assert "from ['1', '2']" in host.bucket.log(2)


def test_numbers_that_are_not_finite_are_not_kept_although_no_agent_saw_them(host: Host) -> None:
    rig = Rig(host)
    with (host.out() / "events.jsonl").open("a") as events:
        events.write('{"kind": "step", "step": 2, "loss": NaN}\n')
    folder = host.out().parent / "work" / "ckpt"
    (folder / "bad").write_text("nan")
    for pid in host.processes():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not host.processes(), "the end of all processes")
    rig.start()
    host.ended()
    assert sorted(names(host)) == ["ckpt/1"]
