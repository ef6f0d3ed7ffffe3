"""What stays on a host whose slice is handed on, and the removal of all else.

A host of a slice is this user's alone, so its memory, temporary files and processes go, too. An emulated host is a
folder and some processes on a person's machine: nothing outside of that folder is ever touched. Where it is not certain
that a host is one of the two, it is not wiped for another owner, and its slice is deleted.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shutil
import time
from typing import List, NamedTuple, Optional, Sequence, Set

from tpujob.agent.attempts import other_attempts, remove_leftovers
from tpujob.agent.base import Failure, read_json, remove_file, write_json
from tpujob.agent.folders import CONTAINERS, EPOCH, KEPT_WORK, ROOT
from tpujob.agent.processes import end_all, free_devices, output_of, read_proc, stats, sudo
from tpujob.agent.setup.mounts import mounted, unmount_all

USER = "tpujob"  #: whom hosts of a slice know by its key
EMULATED = "TPUJOB_EMULATED_HOST"  #: the emulator sets it for every process of a host
PRODUCT = "/sys/class/dmi/id/product_name"
BOOTED = "/etc/ssh/ssh_host_ed25519_key.pub"  #: made when a VM boots for the first time
LIMIT = 50.0  #: seconds for one removal
SHIPPING = 15.0  #: seconds that an attempt gets to bring the rest of its log to the bucket
GRACE = 2.0  #: seconds that processes get to end
OF_SERVICES = ("systemd-private-*", "snap-private-tmp")  #: temporary folders that are no job's
#: where programs of the user leave locks, queues and crashes
SPOOLS = ("/dev/mqueue", "/run/lock", "/var/crash", "/var/lib/apport/coredump")
#: where the system itself mounts and writes; inside of it, where only people do
SYSTEM = "/(boot|dev|etc|home|proc|run|snap|sys|usr|var)/.*"
ADDED = (
    "/(usr/local|var/lib/docker/image/.*/imagedb/content|var/lib/(docker/)?containerd/.*/blobs)/.*"
)


class _Host(NamedTuple):
    """What of this machine is the host's."""

    home: str
    scratch: List[str]  #: folders beside its home
    real: bool  #: the whole machine

    def run(self, argv: List[str]) -> Optional[bytes]:
        """Return what a command prints, as root where the machine is the host's alone. None: it has failed."""
        argv = ["sh", "-c", '"$@" && echo done', "sh", *argv]
        output = output_of(sudo(argv) if self.real else argv, LIMIT) or b""
        return output[: -len(b"done\n")] if output.endswith(b"done\n") else None


def wipe_host(epoch: int, key: str) -> None:
    """Leave what the next job may find: what outlives attempts, or, with the slice's public `key`, hardly anything, and
    that key as the only login. From the begin of this on, no job is started that had the slice up to `epoch`. Raises
    Failure; safe to repeat, until the next job is started."""
    wanted, latest = "all" if key else "attempts", read_json(EPOCH)
    newest, wiped = latest.get("epoch", 0), latest.get("wiped")
    if newest > epoch and (newest > epoch + 1 or wiped is None):
        raise Failure("another job has this slice by now")
    if newest > epoch and wiped in ("all", wanted):
        return
    os.umask(0o077)
    write_json(EPOCH, {"epoch": epoch + 1, "wiped": ""})
    if key:
        _wipe_all(_this_host(), key)
    else:
        _wipe_attempts()
    free_devices(GRACE)
    write_json(EPOCH, {"epoch": epoch + 1, "wiped": wanted})


def _this_host() -> _Host:
    """Raises Failure unless it is certain what belongs to the host."""
    home, account = os.path.realpath(os.path.expanduser("~")), pwd.getpwuid(os.getuid())
    if EMULATED in os.environ:
        if os.path.commonpath([os.path.realpath(account.pw_dir), home]) == home:
            raise Failure("the home folder of this emulated host is a person's")
        own = os.path.realpath(os.environ.get("TMPDIR") or home)
        beside = own != home and os.path.dirname(own) == os.path.dirname(home)
        return _Host(home, [own] if beside else [], False)
    google = b"Google" in (output_of(["cat", PRODUCT], 5) or b"")
    known = (account.pw_name, os.path.realpath(account.pw_dir)) == (USER, home)
    if not google or not known or "TPUJOB_MEMORY" in os.environ:
        raise Failure("this machine is not known to be a host of a slice alone")
    return _Host(home, ["/tmp", "/var/tmp", "/dev/shm"], True)  # noqa: S108


def _wipe_attempts() -> None:
    """For another job of the same owner."""
    remove_leftovers()
    shutil.rmtree(KEPT_WORK, ignore_errors=True)
    for plan in glob.glob(os.path.join(glob.escape(ROOT), "plan-*.json")):
        remove_file(plan)
    try:
        host = _this_host()
    except Failure:  # what is not certainly the host's stays
        return
    for folder in host.scratch:  # staged data is kept, as on disk
        _empty(host, folder, ("tpujob", "memory"), "-uid", str(os.getuid()))


def _wipe_all(host: _Host, key: str) -> None:
    """For a job of another owner."""
    if os.path.isdir(CONTAINERS):
        raise Failure("containers have run here, and may have left images and volumes")
    shipped = time.monotonic() + SHIPPING
    while any(one["live"] for one in other_attempts()) and time.monotonic() < shipped:
        time.sleep(0.1)
    ssh = os.path.join(host.home, ".ssh")
    for _ in range(2):  # until they end, processes may undo the first round
        _let_in_only(ssh, key)
        if host.real:
            output_of(["crontab", "-r"], 10)
        if end_all(lambda: _processes(host), GRACE):
            raise Failure("processes of the last job do not end")
    unmount_all(lambda _: None)
    # caches, too: an edit in an environment changes the same file in the cache of uv, as hard links share it
    _empty(host, ROOT, ("agent-*", "epoch.json", "command.lock"))
    _empty(host, ssh, ("authorized_keys",))
    _empty(host, host.home, (".tpujob", ".ssh"))
    for folder in host.scratch:
        _empty(host, folder, OF_SERVICES)
    if host.real:
        uid = str(os.getuid())
        output_of(["ipcrm", "--all"], 10)
        _empty(host, "/run/user/" + uid, ())
        for folder in SPOOLS:
            _empty(host, folder, (), "-uid", uid)
        host.run(["rm", "-f", "--", *glob.glob("/var/log/journal/*/user-%s[.@]*" % uid)])
        host.run(["find", "/root", "!", "-type", "d", "-cnewer", BOOTED, "-delete"])
        _check_elsewhere(host)


def _let_in_only(folder: str, key: str) -> None:
    """Replace whatever lets people in."""
    if os.path.islink(folder):
        raise Failure("%s is a link" % folder)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "authorized_keys")
    remove_file(path + ".new")
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(key + "\n")
    os.replace(path + ".new", path)


def _processes(host: _Host) -> Set[int]:
    """All of the host's user, also by sudo, or of the emulated host, but this one and those that it comes from."""
    mark = b"\0%s=%s\0" % (EMULATED.encode(), os.fsencode(os.environ.get(EMULATED, "")))
    own, there, pid = {0}, stats(), os.getpid()
    while pid not in own:
        own.add(pid)
        pid = int(there[pid][1]) if pid in there else 0
    found: Set[int] = set()
    for pid in there.keys() - own:
        with contextlib.suppress(OSError):
            mine = os.stat("/proc/%d" % pid).st_uid == os.getuid()
            if mine and (host.real or mark in b"\0" + read_proc(pid, "environ")):
                found.add(pid)
    if host.real:
        look = "grep -lsz '^SUDO_UID=%d$' /proc/[0-9]*/environ" % os.getuid()
        listing = output_of(sudo(["sh", "-c", look]), 10) or b""
        found |= {int(pid) for pid in re.findall(rb"/proc/(\d+)/", listing)} & stats().keys() - own
    return found


def _empty(host: _Host, folder: str, kept: Sequence[str], *only: str) -> None:
    """Remove everything in the folder but names of these patterns, or `only` what `find` selects. Raises Failure if
    something stays."""
    if os.path.islink(folder):
        raise Failure("%s is a link" % folder)
    if any(one.startswith(os.path.realpath(folder) + os.sep) for one in mounted()):
        raise Failure("something is mounted in %s" % folder)
    if os.path.isdir(folder):
        look = ["find", folder, "-ignore_readdir_race", "-mindepth", "1", "-maxdepth", "1", *only]
        look += [word for name in kept for word in ("!", "-name", name)]
        host.run([*look, "-exec", "rm", "-rf", "--one-file-system", "--", "{}", "+"])
        if host.run([*look, "-print", "-quit"]) != b"":
            raise Failure("%s could not be emptied" % folder)


def _check_elsewhere(host: _Host) -> None:
    """Raise Failure if more is left than this knows how to remove: a mount, or a file that is newer than the machine
    and this user's, or lies where the system itself writes none."""
    for place in mounted():
        if place != "/" and not re.fullmatch(SYSTEM, place + "/"):
            raise Failure("%s is mounted" % place)
    look = ["find", "/", "-xdev", "-ignore_readdir_race", "-regextype", "posix-extended"]
    for place in (host.home, "/run", *host.scratch):
        look += ["-path", place, "-prune", "-o"]
    newer = "-cnewer %s ( -uid %d -o ! -type d -size +0 ( ! -regex %s -o -regex %s ) ) -print -quit"
    left = host.run([*look, *(newer % (BOOTED, os.getuid(), SYSTEM, ADDED)).split()])
    if left != b"":
        raise Failure("the last job may have left more on this host: %.200r" % left)
