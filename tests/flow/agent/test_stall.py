"""A program without progress: for how long, and the stacks of its processes."""

from typing import Any

import pytest

from tests.support.agent_host import Host, until
from tests.support.paths import ROOT

#: keeps to the contract, makes two steps, and waits for ever
HANGS = """
import faulthandler, signal, sys, threading
from tpujob.contract import ProgramContext, Reporter
faulthandler.register(signal.SIGUSR1)
report = Reporter(ProgramContext.from_env())
report.event("phase", name="train")
for step in (1, 2):
    report.event("step", step=step, loss=0.5, ms=3)
print("waiting", flush=True)
def all_reduce():
    threading.Event().wait()
all_reduce()
"""

SLEEPS = """
import os, time
while not os.path.exists(os.environ["HOME"] + "/go"): time.sleep(0.2)
print("on", flush=True)
time.sleep(1000)
"""


SHORT = {"seconds": 5, "first": 5, "looks": 5}


def idle(host: Host, seconds: float, looks: int = 0) -> dict[str, Any]:
    """Return the first report of so many idle seconds and polls."""

    def idle_report() -> dict[str, Any] | None:
        report = host.bucket.report()
        long = (report.get("idle") or 0) >= seconds and report.get("looks", 0) >= looks
        return report if long else None

    return until(idle_report, f"{seconds} s of idleness; the report is {host.bucket.report()}")


@pytest.mark.slow
def test_the_report_of_a_hang_has_its_stacks(host: Host) -> None:
    host.env["PYTHONPATH"] = str(ROOT)
    host.start(["python3", "-c", HANGS], stall=SHORT, report_every=600)
    report = idle(host, 5)
    assert (report["phase"], report["step"]) == ("running", 2)
    assert report["looks"] >= 5
    stacks = until(
        lambda: host.bucket.evidence(), "the stacks, which take a moment on a busy machine"
    )
    assert stacks[0].startswith("Current thread"), stacks
    assert any("all_reduce" in line for line in stacks[:6]), stacks
    assert any(line.startswith("process ") and "python3" in line for line in stacks), stacks
    host.agent("stop", "--grace", 1)
    assert "idle" not in host.ended(), "nothing runs that could be idle"
    assert host.bucket.evidence() == stacks, "what it hung in is the evidence of its end"
    log = host.bucket.log()
    assert any(line.startswith("[tpujob] no progress for ") for line in log)
    assert any(line.startswith("[stack] process ") for line in log)


@pytest.mark.slow
def test_a_program_that_only_sleeps_is_idle_until_it_speaks(host: Host) -> None:
    host.start(["python3", "-c", SLEEPS], stall=SHORT, report_every=600)
    assert idle(host, 5)["phase"] == "running"
    until(lambda: any("python3" in line for line in host.bucket.evidence()), "the stacks")
    (host.home / "go").touch()
    until(
        lambda: host.bucket.evidence() == (), "a report without the stacks of a stall that is over"
    )
    host.agent("stop", "--grace", 1)
    assert "[tpujob] it makes progress again" in host.bucket.log()


def test_a_silent_program_that_works_makes_progress(host: Host) -> None:
    program = "import time\nuntil = time.monotonic() + 3.5\nwhile time.monotonic() < until: pass"
    host.start(["python3", "-c", program])
    looks = list[int]()

    def ended() -> bool:
        report = host.bucket.report()
        looks.append(report.get("looks", 0) if report.get("phase") == "running" else 0)
        return report.get("phase") == "exited"

    until(ended, "its end")
    assert max(looks) <= 1, "it was at work all the time"


def test_output_is_no_progress_where_a_progress_pattern_is_given(host: Host) -> None:
    host.metadata.facts["attributes/physical-host"] = "h7"
    host.start("while :; do echo still here; sleep 0.1; done", watch={"progress": "step"})
    report = idle(host, 2, looks=2)
    assert (report["phase"], report["physical"]) == ("running", "h7")
    host.agent("stop", "--grace", 1)


# Notices -------------------------------------------------------------------------------------------------------------

SAVES = """
import signal, sys, threading
from tpujob.contract import ProgramContext, Reporter
report = Reporter(ProgramContext.from_env())
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
report.event("step", step=4)
report.event("checkpoint", step=4)
print("ready", flush=True)
told.wait()
report.event("checkpoint", step={saved})
sys.exit(75)
"""


@pytest.mark.parametrize(("saved", "counts"), [(5, True), (4, False)])
def test_a_checkpoint_after_a_notice_is_measured(host: Host, saved: int, counts: bool) -> None:
    host.env["PYTHONPATH"] = str(ROOT)
    host.start(["python3", "-c", SAVES.replace("{saved}", str(saved))])
    until(lambda: host.bucket.report().get("checkpoint") == 4, "the first checkpoint")
    host.metadata.facts["preempted"] = "TRUE"
    report = host.ended()
    assert (report["notice"], report["exit_code"]) == ("preempted", 75)
    assert (report["saved_in"] is not None) == counts, report
    assert not counts or 0 <= report["saved_in"] < 30


def test_a_machine_to_be_avoided_runs_nothing(host: Host) -> None:
    host.metadata.facts["attributes/physical-host"] = "h7"
    report = host.run(
        "echo never", avoid={"h3": "no", "h7": "a person marked it as bad"}, setup="echo never"
    )
    assert report["cause"] == "PREFLIGHT"
    text = "the program is kept off the physical machine h7: a person marked it as bad"
    assert report["error"] == text
    assert "never" not in host.bucket.log()
    assert host.run("echo here", avoid={"h3": "no"}, attempt=2)["exit_code"] == 0
