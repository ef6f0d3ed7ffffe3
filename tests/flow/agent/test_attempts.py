"""Attempts on a host: one runs at a time, each once, the newest last; stops, preemptions and take-overs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.agent_host import JOB, PATIENT, Host, patient, starts, until
from tests.support.waiting import LONG


def test_a_start_is_answered_at_once_and_outlives_its_session(host: Host) -> None:
    answer = patient(host)
    assert answer["state"] == "started"
    pid = answer["pid"]
    assert os.getsid(pid) not in (os.getsid(0), 0)
    opened = {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)}
    assert opened == {"/dev/null", str(host.out().parent / "agent.log")}


def test_many_starts_at_once_start_one_program(host: Host) -> None:
    plan = host.plan(["python3", "-c", PATIENT])
    calls = [host.call("start", plan) for _ in range(6)]
    answers = [json.loads(call.communicate(timeout=LONG)[0]) for call in calls]
    assert sorted(a["state"] for a in answers) == ["already"] * 5 + ["started"]
    assert len({a["pid"] for a in answers}) == 1
    until(lambda: starts(host), "the start of the program")
    assert host.agent("start", plan)["state"] == "already"
    host.agent("stop", "--grace", 5)
    assert starts(host) == ["1"]


def test_an_attempt_that_has_ended_is_not_started_again(host: Host) -> None:
    assert host.run("echo x >> ~/ran; exit 1")["exit_code"] == 1
    assert host.start("echo x >> ~/ran; exit 1")["state"] == "already"
    assert (host.home / "ran").read_text() == "x\n"


def test_a_program_whose_agent_was_killed_is_not_started_again(host: Host) -> None:
    pid = patient(host)["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in host.processes(), "the end of the agent")
    (attempt,) = host.agent("status")["attempts"]
    assert (attempt["job"], attempt["attempt"]) == (JOB, 1)
    assert (attempt["live"], attempt["phase"]) == (False, "running")
    assert host.start(["python3", "-c", PATIENT])["state"] == "already"
    assert host.agent("stop", "--grace", 5)["ok"]
    assert not any("ready" in c for c in host.processes().values())
    assert starts(host) == ["1"]


def test_a_newer_attempt_ends_the_older_one_first(host: Host) -> None:
    patient(host)
    patient(host, attempt=2)
    assert host.ended(1)["exit_code"] == 75
    assert host.phase("running", 2)["exit_code"] is None
    assert starts(host) == ["1", "2"]
    programs = [c for c in host.processes().values() if "ready" in c and "def _become" not in c]
    assert len(programs) == 1, "its launcher has its command line, too"


def test_a_stale_attempt_is_refused(host: Host) -> None:
    patient(host, attempt=3)
    answer = host.agent("start", host.plan("echo never", attempt=2))
    assert not answer["ok"]
    assert "attempt 3" in answer["error"]
    assert host.bucket.report(2) == {}
    assert host.phase("running", 3)


def test_a_host_that_was_handed_on_starts_no_attempt_of_the_job_that_had_it(host: Host) -> None:
    patient(host, attempt=3)
    handed = host.plan(["python3", "-c", PATIENT], job="000043", attempt=1, epoch=1)
    assert host.agent("start", handed)["state"] == "started"
    assert host.ended(3)["exit_code"] == 75
    answer = host.agent("start", host.plan("echo never", attempt=4))
    assert answer["error"] == "job 000042 does not have this slice any more"
    assert host.bucket.report(4) == {}


def test_an_invalid_plan_is_refused(host: Host) -> None:
    answer = host.agent("start", host.plan("echo never", job="../../x"))
    assert (answer["ok"], answer["cause"]) == (False, "SETUP"), answer
    assert not host.agent("start", host.home / "missing.json")["ok"]
    assert host.agent("status") == {"ok": True, "attempts": []}


def test_a_stop_that_only_asks_returns_before_the_program_ends(host: Host) -> None:
    patient(host)
    assert host.agent("stop", "--grace", 10, "--ask") == {"ok": True, "state": "asked"}
    report = host.ended()
    assert report["exit_code"] == 75
    assert (host.home / "told").read_text() == "x"
    assert host.agent("stop", "--grace", 10)["ok"]


def test_stop_waits_for_the_end_and_may_be_repeated(host: Host) -> None:
    patient(host)
    answer = host.agent("stop", "--grace", 10)
    assert answer["stopped"] == [{"job": "000042", "attempt": 1, "exit_code": 75}]
    assert not any("ready" in c for c in host.processes().values())
    assert host.agent("stop", "--grace", 10) == {"ok": True, "state": "stopped", "stopped": []}
    assert host.ended()["exit_code"] == 75


def test_a_program_that_will_not_stop_is_killed_with_its_children(host: Host) -> None:
    deaf = "trap '' TERM; (trap '' TERM; exec setsid sleep 1000) & touch ~/up; while :; do sleep 0.1; done"
    host.start(deaf)
    until((host.home / "up").exists, "the start of the program")
    answer = host.agent("stop", "--grace", 0.5)
    assert answer["stopped"][0]["exit_code"] == -9
    assert not [c for c in host.processes().values() if "sleep" in c]


def test_stop_reaches_a_set_up_and_the_start_may_then_be_repeated(host: Host) -> None:
    setup = "touch ~/up; [ -e ~/again ] || sleep 1000"
    host.start("echo ran", setup=setup)
    until((host.home / "up").exists, "the start of set-up")
    assert host.agent("stop", "--grace", 5)["ok"]
    assert host.ended()["exit_code"] == -15
    (host.home / "again").touch()
    # the program has never begun, so this is no second start of it
    assert host.start("echo ran", setup=setup)["state"] == "started"
    until(lambda: host.bucket.report().get("exit_code") == 0, "the end of the program")
    assert host.bucket.log()[-1] == "ran"


@pytest.mark.parametrize(
    ("fact", "value", "notice"),
    [
        ("preempted", "TRUE", "preempted"),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "maintenance"),
    ],
)
def test_a_notice_is_passed_on_once(host: Host, fact: str, value: str, notice: str) -> None:
    patient(host)
    host.metadata.facts[fact] = value
    report = host.ended()
    assert (report["notice"], report["exit_code"]) == (notice, 75)
    assert (host.home / "told").read_text() == "x"


def test_sigterm_to_the_agent_reaches_the_program_and_the_agent_stays_to_tell(host: Host) -> None:
    pid = patient(host)["pid"]
    host.metadata.facts["preempted"] = "TRUE"
    for _ in range(3):
        os.kill(pid, signal.SIGTERM)
    report = host.ended()
    assert (report["notice"], report["exit_code"]) == ("preempted", 75)
    assert (host.home / "told").read_text() == "x"


def test_a_notice_during_set_up_starts_no_program(host: Host) -> None:
    host.start("echo never", setup="touch ~/up; sleep 1000")
    until((host.home / "up").exists, "the start of set-up")
    host.metadata.facts["preempted"] = "TRUE"
    report = host.ended()
    assert (report["notice"], report["exit_code"]) == ("preempted", -15)
    assert "never" not in host.bucket.log()


def test_a_process_that_holds_the_device_is_ended_before_the_start(host: Host) -> None:
    device = host.devices / "accel0"
    hold = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open(sys.argv[1])
print("held", flush=True)
time.sleep(1000)
"""
    holder = subprocess.Popen([sys.executable, "-c", hold, str(device)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        lock = host.tmp / "libtpu_lockfile"
        lock.touch()
        report = host.run(f"test -e {lock} && echo locked; echo free", grace=0.3)
        assert (report["exit_code"], host.bucket.log()) == (0, ["free"])
        assert holder.wait(LONG) == -signal.SIGKILL
    finally:
        holder.kill()
        holder.communicate()


def test_without_a_metadata_server_a_program_runs_all_the_same(host: Host) -> None:
    host.env["GCE_METADATA_HOST"] = "127.0.0.1:9"
    assert host.run("echo fine; exit 2")["exit_code"] == 2
