"""Paths on this host below `~/.tpujob`: a folder for each attempt, and the folders that outlive attempts."""

from __future__ import annotations

import os

from tpujob import contract
from tpujob.protocol import paths

ROOT = os.path.join(os.path.expanduser("~"), paths.HOST_FOLDER)
ATTEMPTS = os.path.join(ROOT, "attempts")
CACHES = os.path.expanduser(paths.HOST_CACHE)  #: folders that may be deleted at any time
BUNDLES = os.path.join(ROOT, "bundles")  #: a folder for each hash
#: folders of programs with set-up; the file `FOLDER.done` marks that set-up has succeeded
KEPT_WORK = os.path.join(ROOT, "work")
ENVS = os.path.join(ROOT, "envs")  #: a folder for each environment's key
TOOLS = os.path.join(ROOT, "tools")  #: the programs that build environments
CONTAINERS = os.path.join(ROOT, "containers")  #: a file for each container that may exist
CONTAINER_HOME = os.path.join(ROOT, "home")  #: the home folder of a container's user
MOUNTS = os.path.join(ROOT, "mounts.json")  #: the MountOrder of each mounted folder
MOUNTS_LOG = os.path.join(ROOT, "mounts.log")
PREFLIGHT = os.path.join(ROOT, "preflight.json")  #: the newest check of the devices, if it passed
#: the newest epoch of this host's slice; between a wipe and the next start also the wipe's record
EPOCH = os.path.join(ROOT, "epoch.json")
#: the folder, in the agent's archive, of the modules that programs may import: Python imports from archives, too
IMPORTABLE = os.path.join(os.path.abspath(os.path.dirname(contract.__file__)), "importable")
HOST_LOCK = os.path.join(ROOT, "host.lock")  #: held by the one daemon that may start processes
COMMAND_LOCK = os.path.join(ROOT, "command.lock")  #: held by the one start, stop or wipe that runs


def on_this_host(path: str) -> str:
    """Return a plan's folder as a path on this host; emulated hosts have a folder in place of `/dev/shm`."""
    memory = os.environ.get("TPUJOB_MEMORY")
    if memory and path.startswith(paths.MEMORY + "/"):
        return memory + path[len(paths.MEMORY) :]
    return os.path.expanduser(path)


class AttemptFolder:
    def __init__(self, path: str) -> None:
        self.path = path
        self.state = os.path.join(path, "state.json")  #: the attempt's record
        self.stop = os.path.join(path, "stop.json")  #: asks its daemon to stop
        self.lock = os.path.join(path, "lock")  #: held while its daemon lives
        self.agent_log = os.path.join(path, "agent.log")
        self.live = os.path.join(path, "live")  #: its daemon's socket for followers
        self.out = os.path.join(path, "out")  #: the files of the contract
        self.work = os.path.join(path, "work")  #: the program's working folder
        self.output = os.path.join(path, "output")  #: the pipe of the program's output
        self.end = os.path.join(path, "end")  #: the program's exit code, from its launcher
        self.begun = os.path.join(path, "begun")  #: the position of the log's upload
        self.preflight = os.path.join(path, "preflight")
        self.docker_env = os.path.join(path, "docker.env")  #: a pipe


def folder_of_attempt(job: str, attempt: int) -> AttemptFolder:
    return AttemptFolder(os.path.join(ATTEMPTS, "%s-%d" % (job, attempt)))


def is_below(path: str, folder: str) -> bool:
    """Return whether the path, with all links followed, is `folder` or below it."""
    root = os.path.realpath(folder) + os.sep
    return (os.path.realpath(path) + os.sep).startswith(root)
