"""Runs set-up and the program in a container, which is removed when they have ended.

The container sees the TPU, the host's network, `~/.tpujob` and the mounts, each at its own path, and runs as this user.
Its name is noted before it is started, so that a later agent can remove it.
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
from tpujob.agent.commands import run_bare
from tpujob.agent.folders import CONTAINER_HOME, CONTAINERS, ROOT
from tpujob.agent.processes import output_of, send, sudo
from tpujob.agent.runtimes import Runtime
from tpujob.protocol import EnvironmentOrder

ANSWER = 30.0  #: seconds for the daemon of docker to answer

#: What every container is run with: the devices and the network of the host, memory that the TPU's driver may lock, a
#: first process that passes signals on to all others.
OPTIONS = (
    "--rm", "--init", "--privileged", "--net=host", "--ipc=host", "--ulimit=memlock=-1",
    "--env=TINI_KILL_PROCESS_GROUP=1",
)  # fmt: skip

_counter = itertools.count(1)


class Container(Runtime):
    """Commands run in a container of an image, one container for each."""

    def __init__(self, attempt: HostAttempt, asked: EnvironmentOrder, visible: List[str]) -> None:
        """`visible`: the folders of the host that it sees besides `~/.tpujob`."""
        self.key = self._image = str(asked.get("image"))
        self._args: List[str] = list(asked.get("args") or [])
        self._attempt, self._visible = attempt, visible
        self._docker: List[str] = []
        state = attempt.state
        self._prefix = "tpujob-%s-%d-%d" % (state["job"], state["attempt"], state["pid"])
        self._name = self._pipe = ""

    def make(self) -> None:
        """Pull the image unless this host has it. Raises Failure."""
        self._docker = docker()
        if self._inspect("-") != "-":
            code = run_bare(self._attempt, [*self._docker, "pull", self._image], ROOT, {})
            if code != 0:
                text = "docker cannot pull %s: exit code %d; its log says why"
                raise Failure(text % (self._image, code))
        known = self._inspect("{{range .RepoDigests}}{{.}} {{end}}{{.Id}}").split()
        self._attempt.log.note("environment: image %s" % (known[0] if known else self._image))

    def _inspect(self, shape: str) -> str:
        """What docker says of the image; empty: this host does not have it."""
        words = [*self._docker, "image", "inspect", "--format", shape, self._image]
        return (output_of(words, ANSWER) or b"").decode("utf-8", "replace").strip()

    def command(self, argv: List[str], own: Dict[str, str], cwd: str) -> List[str]:
        self._name = "%s-%d" % (self._prefix, next(_counter))
        for made in (CONTAINERS, CONTAINER_HOME):
            os.makedirs(made, mode=0o700, exist_ok=True)
        with open(os.path.join(CONTAINERS, self._name), "w", encoding="ascii"):
            pass
        user = "--user=%d:%d" % (os.getuid(), os.getgid())
        words = ["--name=%s" % self._name, user, "--workdir=%s" % os.path.realpath(cwd)]
        for path in (ROOT, *self._visible):
            words.append("--volume=%s:%s" % (path, path))
        variables = self._variables({"HOME": CONTAINER_HOME, **own})
        return [*self._docker, "run", *OPTIONS, *words, *variables, *self._args, self._image, *argv]

    def _variables(self, own: Dict[str, str]) -> List[str]:
        """Return the arguments that set the variables. Values go through a pipe that only this user opens: other users
        see a command line, and a file would stay. A value with a newline does not fit the pipe and stands on the
        command line. Raise Failure if it is a secret."""
        self._pipe, plain = self._attempt.folder.docker_env, dict(own)
        several = [name for name, value in own.items() if "\n" in value]
        for name in several:
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
        words = ["--env=%s=%s" % (name, own[name]) for name in several]
        return ["--env-file=%s" % self._pipe, *words]

    def send(self, pids: Set[int], number: int) -> None:
        """Through docker, as a signal to its client may get lost or arrive twice."""
        kill = ["kill", "--signal=%s" % signal.Signals(number).name, self._name]
        heard = output_of([*self._docker, *kill], ANSWER) == self._name.encode() + b"\n"
        if not heard or number == signal.SIGKILL:  # there is none yet, or docker is stuck
            send(pids, number)

    def clear(self) -> None:
        remove([self._name] if self._name else [])
        if self._pipe:
            with contextlib.suppress(OSError):  # docker may have ended before it asked
                os.close(os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK))
            remove_file(self._pipe)


def _write_pipe(pipe: str, text: str) -> None:
    """Wait until a reader opens the pipe, then write the text to it."""
    with contextlib.suppress(OSError), open(pipe, "w", encoding="utf-8") as file:
        file.write(text)


def docker() -> List[str]:
    """The words that docker is called with, sudo included where needed. Raises Failure."""
    if not shutil.which("docker"):
        raise Failure(
            "docker is not on this host; take a runtime_version that has it, or write "
            "`env: {uv: requirements.txt}` instead"
        )
    for words in (["docker"], sudo(["docker"])):
        if words and output_of([*words, "version", "--format", "{{.Server.Version}}"], ANSWER):
            return words
    raise Failure("docker is on this host, but its daemon does not answer this user, nor by sudo")


def remove(names: List[str]) -> None:
    """Remove these containers. What fails is tried again by the next attempt."""
    if not names:
        return
    try:
        words = docker()
    except Failure:
        return
    for name in names:
        if output_of([*words, "rm", "--force", name], ANSWER) is not None:
            remove_file(os.path.join(CONTAINERS, name))


def remove_containers() -> None:
    """Remove every container of an attempt on this host."""
    with contextlib.suppress(FileNotFoundError):
        remove(sorted(os.listdir(CONTAINERS)))
