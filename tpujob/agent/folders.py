"""Where everything lies on this host: below `~/.tpujob`, one folder for each attempt and what outlives attempts."""

from __future__ import annotations

import os
import shutil

from tpujob.protocol import paths

ROOT = os.path.join(os.path.expanduser("~"), paths.HOST_FOLDER)
ATTEMPTS = os.path.join(ROOT, "attempts")
CACHES = os.path.expanduser(paths.HOST_CACHE)  #: may be lost at any time: a folder for each tool
BUNDLES = os.path.join(ROOT, "bundles")  #: by hash
KEPT_WORK = os.path.join(ROOT, "work")  #: folders of programs whose set-up is done
ENVS = os.path.join(ROOT, "envs")  #: environments, by key
TOOLS = os.path.join(ROOT, "tools")  #: what makes environments
CONTAINERS = os.path.join(ROOT, "containers")  #: a file for each container that may exist
CONTAINER_HOME = os.path.join(ROOT, "home")  #: the home folder of a container's user
MOUNTS = os.path.join(ROOT, "mounts.json")  #: what an agent mounted: place -> what was asked for
MOUNTS_LOG = os.path.join(ROOT, "mounts.log")
PREFLIGHT = os.path.join(ROOT, "preflight.json")  #: the newest check of the devices, if it passed
#: the epoch of the newest job that has this host's slice; after a wipe also what was wiped, until that job is started
EPOCH = os.path.join(ROOT, "epoch.json")
HOST_LOCK = os.path.join(ROOT, "host.lock")  #: held by the daemon that may own processes
COMMAND_LOCK = os.path.join(ROOT, "command.lock")  #: held by the command that decides


def on_this_host(path: str) -> str:
    """A folder that a plan names. Emulated hosts share their machine's memory, so each has a folder instead of it."""
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
        self.live = os.path.join(path, "live")  #: its daemon's socket, for those who follow
        self.out = os.path.join(path, "out")  #: for the files of the contract
        self.work = os.path.join(path, "work")  #: where the program runs
        self.begun = os.path.join(path, "begun")  #: how far its log is on the way to the bucket
        self.preflight = os.path.join(path, "preflight")
        self.docker_env = os.path.join(path, "docker.env")  #: a pipe


def folder_of_attempt(job: str, attempt: int) -> AttemptFolder:
    return AttemptFolder(os.path.join(ATTEMPTS, "%s-%d" % (job, attempt)))


def is_below(path: str, folder: str) -> bool:
    """Whether it, with all links followed, is the folder or below it."""
    inside = os.path.realpath(folder) + os.sep
    return (os.path.realpath(path) + os.sep).startswith(inside)


def make_empty(path: str) -> None:
    """Make the folder, empty whatever was in it."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
