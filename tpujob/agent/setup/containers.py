"""Images: set-up and the program run in a container, which is gone when they have ended.

The container sees the TPU, the host's network, `~/.tpujob` and the mounts, each at its own place, and runs as this
user. Its name is noted before it is started, so that whoever comes after this agent finds it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
from typing import Callable, Dict, List, Set

from tpujob.agent.base import ROOT, Failure, Note, Record, remove_file
from tpujob.agent.processes import output_of, send, sudo
from tpujob.agent.setup.runtimes import Bare

NAMES = os.path.join(ROOT, "containers")  #: a file for each container that may exist
HOME = os.path.join(ROOT, "home")  #: its user's home folder; outlives attempts
ANSWER = 30.0  #: seconds for the daemon of docker to answer

#: What every container is run with: the devices and the network of the host, memory that the TPU's driver may lock, a
#: first process that passes signals on to all others.
OPTIONS = (
    "--rm", "--init", "--privileged", "--net=host", "--ipc=host", "--ulimit=memlock=-1",
    "--env=TINI_KILL_PROCESS_GROUP=1",
)  # fmt: skip

_counter = itertools.count(1)


class Container(Bare):
    """Commands run in a container of an image, one container for each."""

    def __init__(self, plan: Record, folder: str, places: List[str]) -> None:
        """`folder`: the attempt's. `places`: what it sees of the host besides `~/.tpujob`."""
        asked = plan["environment"]
        self.key = self._image = str(asked["image"])
        self._args: List[str] = list(asked.get("args") or [])
        self._folder, self._places = folder, places
        self._docker: List[str] = []
        self._prefix = "tpujob-%s-%d-%d" % (plan["job"], plan["attempt"], os.getpid())
        self._name = ""

    def make(self, note: Note, run: Callable[[List[str]], int]) -> None:
        """The image is on this host afterwards. Raises Failure."""
        self._docker = docker()
        if (
            output_of([*self._docker, "image", "inspect", "--format", "-", self._image], ANSWER)
            != b"-\n"
        ):
            code = run([*self._docker, "pull", self._image])
            if code != 0:
                raise Failure(
                    "docker cannot pull %s: exit code %d; its log says why" % (self._image, code)
                )
        shape = "{{range .RepoDigests}}{{.}} {{end}}{{.Id}}"
        said = output_of(
            [*self._docker, "image", "inspect", "--format", shape, self._image], ANSWER
        )
        known = (said or b"").decode("utf-8", "replace").split()
        note("environment: image %s" % (known[0] if known else self._image))

    def command(self, argv: List[str], own: Dict[str, str], cwd: str) -> List[str]:
        self._name = "%s-%d" % (self._prefix, next(_counter))
        for made in (NAMES, HOME):
            os.makedirs(made, mode=0o700, exist_ok=True)
        with open(os.path.join(NAMES, self._name), "w", encoding="ascii"):
            pass
        user = "--user=%d:%d" % (os.getuid(), os.getgid())
        words = ["--name=%s" % self._name, user, "--workdir=%s" % os.path.realpath(cwd)]
        for place in (ROOT, *self._places):
            words.append("--volume=%s:%s" % (place, place))
        variables = self._variables(dict({"HOME": HOME}, **own))
        return [*self._docker, "run", *OPTIONS, *words, *variables, *self._args, self._image, *argv]

    def _variables(self, own: Dict[str, str]) -> List[str]:
        """In a file that only this user reads: other users see what is on a command line. A file has no way to say a
        line's end, so a value with one is given by word."""
        path = os.path.join(self._folder, "docker.env")
        plain = {k: v for k, v in own.items() if "\n" not in v}
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines("%s=%s\n" % pair for pair in plain.items())
        several = ["--env=%s=%s" % (k, v) for k, v in own.items() if k not in plain]
        return ["--env-file=%s" % path, *several]

    def send(self, pids: Set[int], number: int) -> None:
        """By docker, as a signal to its client may not arrive, or arrive twice."""
        kill = ["kill", "--signal=%s" % signal.Signals(number).name, self._name]
        heard = output_of([*self._docker, *kill], ANSWER) == self._name.encode() + b"\n"
        if not heard or number == signal.SIGKILL:  # there is none yet, or docker is stuck
            send(pids, number)

    def clear(self) -> None:
        remove([self._name] if self._name else [])


def docker() -> List[str]:
    """The words that docker is called with. Raises Failure."""
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
    """These containers are gone. Whoever cannot be reached is tried again by the next attempt."""
    if not names:
        return
    try:
        words = docker()
    except Failure:
        return
    for name in names:
        if output_of([*words, "rm", "--force", name], ANSWER) is not None:
            remove_file(os.path.join(NAMES, name))


def remove_all() -> None:
    """No container of an attempt is left on this host."""
    with contextlib.suppress(FileNotFoundError):
        remove(sorted(os.listdir(NAMES)))
