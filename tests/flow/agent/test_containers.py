"""Programs in a container. A stand-in for docker runs commands as processes of this machine, and records its command
lines; no test shows that a real container sees a TPU.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_host import Host, until

IMAGE = "ghcr.io/lab/train@sha256:" + "0" * 64
DOCKER = """\
#!/usr/bin/env python3
import os, signal, sys
told, words = os.environ["TOLD"], sys.argv[1:]
with open(told, "a") as file:
    file.write(" ".join(words) + "\\n")
name = next((w.partition("=")[2] for w in words if w.startswith("--name=")), words[-1])
pid_file = os.path.join(os.path.dirname(told), name.replace("/", "_") + ".pid")
if words[0] == "version":
    print("27.0")
elif words[0] == "image":
    if not os.path.exists(told + ".pulled"):
        sys.exit(1)
    print("-" if words[3] == "-" else "ghcr.io/lab/train@sha256:0 sha256:1")
elif words[0] == "pull":
    print("pulling", words[1])
    open(told + ".pulled", "w").close()
elif words[0] == "kill":
    os.kill(int(open(pid_file).read()), getattr(signal, words[1].partition("=")[2]))
    print(name)
elif words[0] == "run":
    given = {w.partition("=")[0]: w.partition("=")[2] for w in words if w.startswith("--")}
    env = dict(line.rstrip("\\n").split("=", 1) for line in open(given["--env-file"]))
    env["PATH"] = os.environ["PATH"]
    with open(pid_file, "w") as file:
        file.write(str(os.getpid()))
    os.chdir(given["--workdir"])
    program = words[words.index(os.environ["IMAGE"]) + 1 :]
    os.execvpe(program[0], program, env)
"""


@pytest.fixture
def call_log(host: Host) -> Path:
    """Return the file with docker's command lines."""
    host.tools({"docker": DOCKER})
    call_log = host.home / "told"
    host.env.update(TOLD=str(call_log), IMAGE=IMAGE)
    return call_log


def image(**fields: Any) -> dict[str, Any]:
    """Return the plan's order for an image."""
    order = {"kind": "docker", "image": IMAGE, "args": ["--shm-size=1g"]}
    return {"environment": order, "shared": "gs://shed/cache", **fields}


def calls(call_log: Path, verb: str) -> list[str]:
    return [line for line in call_log.read_text().splitlines() if line.startswith(verb + " ")]


def test_set_up_and_program_run_in_the_image_on_the_host(host: Host, call_log: Path) -> None:
    program = "echo $TPUJOB_JOB $COLOUR $HOME; pwd"
    report = host.run(program, env={"COLOUR": "a b"}, setup="echo prepared", **image())
    assert report["exit_code"] == 0, host.bucket.log()
    log = host.bucket.log()
    assert "[env] pulling " + IMAGE in log
    assert "[tpujob] environment: image ghcr.io/lab/train@sha256:0" in log
    assert "[setup] prepared" in log
    home = host.home / ".tpujob"
    assert f"000042 a b {home}/home" in log
    _, run = calls(call_log, "run")
    options, _, command = run.partition(f" --shm-size=1g {IMAGE} ")
    assert command == f"bash -o pipefail -c {program}"
    for option in ("--rm", "--init", "--privileged", "--net=host", f"--volume={home}:{home}"):
        assert option in options.split()
    assert "COLOUR" not in options, "other users see a command line"
    assert len(calls(call_log, "rm")) == 2, "no container is left"
    assert list((home / "containers").iterdir()) == []
    host.run("true", attempt=2, **image())
    assert len(calls(call_log, "pull")) == 1


def test_a_stop_reaches_the_container(host: Host, call_log: Path) -> None:
    program = "trap 'echo saving; exit 75' TERM; echo up; while :; do sleep 0.05; done"
    host.start(program, **image())
    until(lambda: "up" in host.bucket.log(), "the program's first line")
    host.agent("stop", "--grace", 60)
    assert host.ended()["exit_code"] == 75
    assert "saving" in host.bucket.log()
    (kill,) = calls(call_log, "kill")
    assert kill.startswith("kill --signal=SIGTERM tpujob-000042-1-")
    assert calls(call_log, "rm")


def test_a_container_gets_secrets_by_a_pipe_that_nothing_keeps(host: Host, call_log: Path) -> None:
    secrets = {"WANDB_API_KEY": "canary-4711"}
    report = host.run("echo it has ${#WANDB_API_KEY}", secrets=secrets, setup="true", **image())
    assert report["exit_code"] == 0, host.bucket.log()
    assert "it has 11" in host.bucket.log()
    files = [path for path in host.home.rglob("*") if path.is_file()]
    assert not [path for path in files if b"canary-4711" in path.read_bytes()]
    assert not [path for path in host.home.rglob("*") if path.is_fifo()], "the pipe is left"


def test_a_secret_of_several_lines_never_gets_on_a_command_line(host: Host, call_log: Path) -> None:
    report = host.run("true", secrets={"SSH_KEY": "canary\n4711"}, **image())
    assert "SSH_KEY has several lines" in report["error"]
    assert not calls(call_log, "run")


def test_what_a_dead_agent_left_running_is_removed(host: Host, call_log: Path) -> None:
    names = host.home / ".tpujob" / "containers"
    names.mkdir(parents=True)
    (names / "tpujob-000041-1-9-1").touch()
    host.run("true")
    assert calls(call_log, "rm") == ["rm --force tpujob-000041-1-9-1"]
    assert list(names.iterdir()) == []


def test_a_host_without_docker_says_so(host: Host) -> None:
    tools = host.tools({})
    for name in ("bash", "env"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    host.env["PATH"] = str(tools)
    report = host.run("echo never", **image())
    assert report["cause"] == "SETUP"
    assert report["error"].startswith("docker is not on this host; take a runtime_version that has")
