"""Wipes a host whose slice is handed on to another job.

A real host serves this user alone, so the wipe includes memory, temporary files and processes. An emulated host is a
folder and some processes on a person's machine: the wipe never touches anything outside that folder. A machine that is
not certainly one of the two is not wiped for another owner; the backend then deletes the slice.
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
from tpujob.agent.processes import end_all, free_devices, output_of, process_table, read_proc, sudo
from tpujob.agent.setup.mounts import mounted, unmount_all

USER = "tpujob"  #: the user of tpujob on real hosts
EMULATED = "TPUJOB_EMULATED_HOST"  #: the emulator sets it for every process of a host
PRODUCT = "/sys/class/dmi/id/product_name"
BOOTED = "/etc/ssh/ssh_host_ed25519_key.pub"  #: a file of a VM's first boot
LIMIT = 50.0  #: seconds for one command
SHIPPING = 15.0  #: seconds that attempts get to upload the rest of their logs
GRACE = 2.0  #: seconds that processes get to end
OF_SERVICES = ("systemd-private-*", "snap-private-tmp")  #: services' folders, which stay
#: folders with locks, queues and crashes of programs
SPOOLS = ("/dev/mqueue", "/run/lock", "/var/crash", "/var/lib/apport/coredump")
#: paths that the system itself mounts and writes to
SYSTEM = "/(boot|dev|etc|home|proc|run|snap|sys|usr|var)/.*"
#: paths below SYSTEM that only users write to
ADDED = (
    "/(usr/local|var/lib/docker/image/.*/imagedb/content|var/lib/(docker/)?containerd/.*/blobs)/.*"
)


class _Host(NamedTuple):
    """The part of this machine that belongs to the host."""

    home: str
    scratch: List[str]  #: folders beside the home folder
    real: bool  #: the host has the whole machine

    def run(self, argv: List[str]) -> Optional[bytes]:
        """Return the output of a command, which runs as root on a real host; None: it failed."""
        argv = ["sh", "-c", '"$@" && echo done', "sh", *argv]
        output = output_of(sudo(argv) if self.real else argv, LIMIT) or b""
        return output[: -len(b"done\n")] if output.endswith(b"done\n") else None


def wipe_host(epoch: int, key: str) -> None:
    """Delete the attempts' files for another job of the same owner. With the slice's public `key`, delete all of the
    host's files for another owner, and make that key the only login. First refuse all further starts of jobs up to
    `epoch`. Raises Failure; safe to repeat until the next job is started."""
    scope, latest = "all" if key else "attempts", read_json(EPOCH)
    newest, wiped = latest.get("epoch", 0), latest.get("wiped")
    if newest > epoch and (newest > epoch + 1 or wiped is None):
        raise Failure("another job has this slice by now")
    if newest > epoch and wiped in ("all", scope):
        return
    os.umask(0o077)
    write_json(EPOCH, {"epoch": epoch + 1, "wiped": ""})
    if key:
        _wipe_all(_this_host(), key)
    else:
        _wipe_attempts()
    free_devices(GRACE)
    write_json(EPOCH, {"epoch": epoch + 1, "wiped": scope})


def _this_host() -> _Host:
    """Return the part of this machine that belongs to the host. Raises Failure if that is not certain."""
    home, account = os.path.realpath(os.path.expanduser("~")), pwd.getpwuid(os.getuid())
    if EMULATED in os.environ:
        if os.path.commonpath([os.path.realpath(account.pw_dir), home]) == home:
            raise Failure("the home folder of this emulated host is a person's")
        temporary = os.path.realpath(os.environ.get("TMPDIR") or home)
        is_sibling = temporary != home and os.path.dirname(temporary) == os.path.dirname(home)
        return _Host(home, [temporary] if is_sibling else [], False)
    is_google = b"Google" in (output_of(["cat", PRODUCT], 5) or b"")
    is_our_user = (account.pw_name, os.path.realpath(account.pw_dir)) == (USER, home)
    if not is_google or not is_our_user or "TPUJOB_MEMORY" in os.environ:
        raise Failure("this machine is not known to be a host of a slice alone")
    return _Host(home, ["/tmp", "/var/tmp", "/dev/shm"], True)  # noqa: S108


def _wipe_attempts() -> None:
    """Wipe the host for another job of the same owner."""
    remove_leftovers()
    shutil.rmtree(KEPT_WORK, ignore_errors=True)
    for plan in glob.glob(os.path.join(glob.escape(ROOT), "plan-*.json")):
        remove_file(plan)
    try:
        host = _this_host()
    except Failure:  # keeps files that may belong to others
        return
    for folder in host.scratch:  # keeps staged data
        _empty(host, folder, ("tpujob", "memory"), "-uid", str(os.getuid()))


def _wipe_all(host: _Host, key: str) -> None:
    """Wipe the host for a job of another owner."""
    if os.path.isdir(CONTAINERS):
        raise Failure("containers have run here, and may have left images and volumes")
    until = time.monotonic() + SHIPPING
    while any(attempt["live"] for attempt in other_attempts()) and time.monotonic() < until:
        time.sleep(0.1)
    ssh = os.path.join(host.home, ".ssh")
    for _ in range(2):  # running processes may undo the first round
        _authorize_only(ssh, key)
        if host.real:
            output_of(["crontab", "-r"], 10)
        if end_all(lambda: _find_processes(host), GRACE):
            raise Failure("processes of the last job do not end")
    unmount_all(lambda _: None)
    # caches, too: uv links files into environments, so an edit there may have changed the cached file
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


def _authorize_only(folder: str, key: str) -> None:
    """Make the key the only one that SSH accepts."""
    if os.path.islink(folder):
        raise Failure("%s is a link" % folder)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "authorized_keys")
    remove_file(path + ".new")
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(key + "\n")
    os.replace(path + ".new", path)


def _find_processes(host: _Host) -> Set[int]:
    """Return the processes of the host, except this process and its ancestors: those of this user, with sudo or
    without; on an emulated host those with its variable."""
    marker = b"\0%s=%s\0" % (EMULATED.encode(), os.fsencode(os.environ.get(EMULATED, "")))
    ancestors, table, pid = {0}, process_table(), os.getpid()
    while pid not in ancestors:
        ancestors.add(pid)
        pid = int(table[pid][1]) if pid in table else 0
    pids: Set[int] = set()
    for pid in table.keys() - ancestors:
        with contextlib.suppress(OSError):
            is_ours = os.stat("/proc/%d" % pid).st_uid == os.getuid()
            if is_ours and (host.real or marker in b"\0" + read_proc(pid, "environ")):
                pids.add(pid)
    if host.real:
        command = "grep -lsz '^SUDO_UID=%d$' /proc/[0-9]*/environ" % os.getuid()
        listing = output_of(sudo(["sh", "-c", command]), 10) or b""
        with_sudo = {int(pid) for pid in re.findall(rb"/proc/(\d+)/", listing)}
        pids |= with_sudo & process_table().keys() - ancestors
    return pids


def _empty(host: _Host, folder: str, keep: Sequence[str], *tests: str) -> None:
    """Delete the content of a folder, except names that match the patterns `keep`, and files that fail the `tests` of
    `find`. Raises Failure if something stays."""
    if os.path.islink(folder):
        raise Failure("%s is a link" % folder)
    if any(path.startswith(os.path.realpath(folder) + os.sep) for path in mounted()):
        raise Failure("something is mounted in %s" % folder)
    if os.path.isdir(folder):
        find = ["find", folder, "-ignore_readdir_race", "-mindepth", "1", "-maxdepth", "1", *tests]
        find += [word for name in keep for word in ("!", "-name", name)]
        host.run([*find, "-exec", "rm", "-rf", "--one-file-system", "--", "{}", "+"])
        if host.run([*find, "-print", "-quit"]) != b"":
            raise Failure("%s could not be emptied" % folder)


def _check_elsewhere(host: _Host) -> None:
    """Raise Failure for leftovers that a wipe cannot delete: a mount, or a file newer than the machine that belongs to
    this user or lies outside the system's paths."""
    for path in mounted():
        if path != "/" and not re.fullmatch(SYSTEM, path + "/"):
            raise Failure("%s is mounted" % path)
    find = ["find", "/", "-xdev", "-ignore_readdir_race", "-regextype", "posix-extended"]
    for path in (host.home, "/run", *host.scratch):
        find += ["-path", path, "-prune", "-o"]
    tests = "-cnewer %s ( -uid %d -o ! -type d -size +0 ( ! -regex %s -o -regex %s ) ) -print -quit"
    leftover = host.run([*find, *(tests % (BOOTED, os.getuid(), SYSTEM, ADDED)).split()])
    if leftover != b"":
        raise Failure("the last job may have left more on this host: %.200r" % leftover)
