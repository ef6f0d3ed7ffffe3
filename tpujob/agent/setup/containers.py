"""Runs set-up and the program in containers, and removes the containers afterwards.

A container sees the TPU, the host's network, `~/.tpujob`, mounts and staged data, at the host's paths, and runs as this
user. The agent records a container's name before the start, so that a later agent can remove the container.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import threading
from typing import Dict, List, Set

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure, remove_file
from tpujob.agent.commands import run_on_host
from tpujob.agent.folders import CONTAINER_HOME, CONTAINERS, ROOT
from tpujob.agent.processes import output_of, send, sudo
from tpujob.agent.runtimes import Runtime
from tpujob.protocol import EnvironmentOrder

ANSWER = 30.0  #: seconds that Docker's daemon may take to answer

#: options of every container: the host's devices and network, lockable memory for the TPU's driver, and a first process
#: that passes signals on to all other processes
OPTIONS = (
    "--rm", "--init", "--privileged", "--net=host", "--ipc=host", "--ulimit=memlock=-1",
    "--env=TINI_KILL_PROCESS_GROUP=1",
)  # fmt: skip

_counter = itertools.count(1)


class Container(Runtime):
    """A runtime of an image: each command runs in a new container."""

    def __init__(self, attempt: HostAttempt, order: EnvironmentOrder, visible: List[str]) -> None:
        """`visible` are the host's folders that containers see besides `~/.tpujob`."""
        self.key = self._image = str(order.get("image"))
        self._args: List[str] = list(order.get("args") or [])
        self._attempt, self._visible = attempt, visible
        self._docker: List[str] = []
        state = attempt.state
        self._prefix = "tpujob-%s-%d-%d" % (state["job"], state["attempt"], state["pid"])
        self._name = self._pipe = ""

    def make(self) -> None:
        """Pull the image unless this host has it. Raises Failure."""
        self._docker = docker()
        if self._inspect("-") != "-":
            code = run_on_host(self._attempt, [*self._docker, "pull", self._image], ROOT, {})
            if code != 0:
                reason = self._attempt.log.reason(b"[env] ")
                text = "docker cannot pull %s: exit code %d%s"
                raise Failure(text % (self._image, code, reason))
        ids = self._inspect("{{range .RepoDigests}}{{.}} {{end}}{{.Id}}").split()
        self._attempt.log.note("environment: image %s" % (ids[0] if ids else self._image))

    def take_over(self) -> None:
        """Use the newest container of an earlier agent of this attempt. Raises Failure."""
        self._docker = docker()
        prefix = self._prefix.rpartition("-")[0] + "-"
        with contextlib.suppress(FileNotFoundError):
            names = [name for name in os.listdir(CONTAINERS) if name.startswith(prefix)]
            names.sort(key=lambda name: os.path.getmtime(os.path.join(CONTAINERS, name)))
            self._name = names[-1] if names else ""

    def _inspect(self, template: str) -> str:
        """Return Docker's facts of the image in that template; empty: this host does not have the image."""
        argv = [*self._docker, "image", "inspect", "--format", template, self._image]
        return (output_of(argv, ANSWER) or b"").decode("utf-8", "replace").strip()

    def command(self, argv: List[str], env: Dict[str, str], cwd: str) -> List[str]:
        self._name = "%s-%d" % (self._prefix, next(_counter))
        for folder in (CONTAINERS, CONTAINER_HOME):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.path.join(CONTAINERS, self._name), "w", encoding="ascii"):
            pass
        user = "--user=%d:%d" % (os.getuid(), os.getgid())
        options = ["--name=%s" % self._name, user, "--workdir=%s" % os.path.realpath(cwd)]
        options += ["--volume=%s:%s" % (path, path) for path in (ROOT, *self._visible)]
        options += self._variable_options({"HOME": CONTAINER_HOME, **env})
        return [*self._docker, "run", *OPTIONS, *options, *self._args, self._image, *argv]

    def _variable_options(self, variables: Dict[str, str]) -> List[str]:
        """Return the options that set the variables. Values go through a pipe that only this user can open: other users
        see command lines, and a file would stay. A value with a newline does not fit the pipe and goes on the command
        line. Raises Failure if such a value is a secret."""
        self._pipe = self._attempt.folder.docker_env
        plain = dict(variables)
        multiline = [name for name, value in variables.items() if "\n" in value]
        for name in multiline:
            del plain[name]
            if name in self._attempt.secrets:
                text = (
                    "the secret %s has several lines, and a container takes one; set it in base64"
                )
                raise Failure(text % name)
        remove_file(self._pipe)
        os.mkfifo(self._pipe, 0o600)
        text = "".join("%s=%s\n" % pair for pair in plain.items())
        threading.Thread(target=_write_pipe, args=(self._pipe, text), daemon=True).start()
        options = ["--env=%s=%s" % (name, variables[name]) for name in multiline]
        return ["--env-file=%s" % self._pipe, *options]

    def send(self, pids: Set[int], number: int) -> None:
        """Send the signal through Docker: a signal to Docker's client may get lost or arrive twice."""
        kill = ["kill", "--signal=%s" % signal.Signals(number).name, self._name]
        done = output_of([*self._docker, *kill], ANSWER) == self._name.encode() + b"\n"
        if not done or number == signal.SIGKILL:  # no container yet, or Docker is stuck
            send(pids, number)

    def clear(self) -> None:
        remove([self._name] if self._name else [])
        if self._pipe:
            with contextlib.suppress(OSError):  # ends the writer if Docker never read the pipe
                os.close(os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK))
            remove_file(self._pipe)


def _write_pipe(pipe: str, text: str) -> None:
    """Wait until a reader opens the pipe, then write the text to it."""
    with contextlib.suppress(OSError), open(pipe, "w", encoding="utf-8") as file:
        file.write(text)


def docker() -> List[str]:
    """Return the command line of Docker's client, with sudo where needed. Raises Failure."""
    if not shutil.which("docker"):
        raise Failure(
            "docker is not on this host; take a runtime_version that has it, or write "
            "`env: {uv: requirements.txt}` instead"
        )
    for argv in (["docker"], sudo(["docker"])):
        if argv and output_of([*argv, "version", "--format", "{{.Server.Version}}"], ANSWER):
            return argv
    raise Failure("docker is on this host, but its daemon does not answer this user, nor by sudo")


def remove(names: List[str]) -> None:
    """Remove these containers. The next attempt repeats removals that Docker did not answer."""
    if not names:
        return
    try:
        argv = docker()
    except Failure:
        return
    for name in names:
        if output_of([*argv, "rm", "--force", name], ANSWER) is not None:
            remove_file(os.path.join(CONTAINERS, name))


def remove_containers() -> None:
    """Remove every container of an attempt on this host."""
    with contextlib.suppress(FileNotFoundError):
        remove(sorted(os.listdir(CONTAINERS)))
