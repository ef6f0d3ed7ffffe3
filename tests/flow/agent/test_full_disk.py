"""A program that has filled the disk of its host can be stopped, and its end is reported."""

import json
import resource
import subprocess

from tests.flow.agent.gate import open_gate, start_at_gate
from tests.support.agent_host import AGENT, Host, agent_as_files, patient
from tests.support.waiting import LONG


def fill(pid: int) -> None:
    """Let that process write to no file from now on, as on a full disk."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def stop(host: Host) -> dict[str, object]:
    """Call `stop`, which can write to no file either."""
    argv = [*AGENT, str(agent_as_files()), "stop", "--grace", "5"]
    full = ["bash", "-c", 'ulimit -f 0 && exec "$@"', "bash", *argv]
    result = subprocess.run(full, env=host.env, stdout=subprocess.PIPE, timeout=LONG, check=False)
    return json.loads(result.stdout)


def test_the_end_of_a_program_is_reported_from_a_full_disk(host: Host) -> None:
    preflight, mounts = (host.home / ".tpujob" / f"{name}.json" for name in ("preflight", "mounts"))
    pid = start_at_gate(host, "exit 3")
    preflight.write_text(json.dumps({"passed": True}))
    mounts.write_text(json.dumps({"/nowhere": {}}))
    fill(pid)
    open_gate(host)
    assert host.ended()["exit_code"] == 3
    assert not preflight.exists(), "a check that is in doubt still holds"


def test_a_program_is_stopped_and_may_save_what_it_has(host: Host) -> None:
    fill(patient(host)["pid"])
    answer = stop(host)
    assert answer["ok"], answer
    assert (host.home / "told").read_text() == "x"
    report = host.ended()
    assert (report["exit_code"], report["phase"]) == (75, "exited")
    assert not any("ready" in command for command in host.processes().values())
