"""A program that has filled the disk of its host can be stopped, and its end is told."""

import json
import resource
import subprocess

from tests.support.agent_host import AGENT, Host, agent_as_files, patient, until


def fill(pid: object) -> None:
    """From now on that process can write to no file, as on a full disk."""
    assert isinstance(pid, int)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def stop(host: Host) -> dict[str, object]:
    """`stop`, with no room for a word of its own."""
    words = [*AGENT, str(agent_as_files()), "stop", "--grace", "5"]
    full = ["bash", "-c", 'ulimit -f 0 && exec "$@"', "bash", *words]
    said = subprocess.run(full, env=host.env, stdout=subprocess.PIPE, timeout=90, check=False)
    return json.loads(said.stdout)


def test_the_end_of_a_program_is_reported_from_a_full_disk(host: Host) -> None:
    kept, mounts = (host.home / ".tpujob" / f"{name}.json" for name in ("preflight", "mounts"))
    pid = host.start("touch ~/up; until [ -e ~/go ]; do sleep 0.05; done; exit 3")["pid"]
    until((host.home / "up").exists, "the start of the program")
    kept.write_text(json.dumps({"passed": True}))
    mounts.write_text(json.dumps({"/nowhere": {}}))
    fill(pid)
    (host.home / "go").touch()
    assert host.ended()["exit_code"] == 3
    assert not kept.exists(), "a check that is in doubt still holds"


def test_a_program_is_stopped_and_may_save_what_it_has(host: Host) -> None:
    fill(patient(host)["pid"])
    said = stop(host)
    assert said["ok"], said
    assert (host.home / "told").read_text() == "x"
    report = host.ended()
    assert (report["exit_code"], report["phase"]) == (75, "exited")
    assert not any("ready" in command for command in host.processes().values())
