"""Wipes a host whose slice is handed on to another job.

A real host serves this user alone, so the wipe includes memory, temporary files and processes. An emulated host is a
folder and some processes on a person's machine: the wipe never touches anything outside that folder. A machine that is
not certainly one of the two is not wiped for another owner; the backend then deletes the slice. So it does with a real
host that is not as it was before its first job, and one of which that is not known (`first_boot.py`).
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import pwd
import shutil
import time
from typing import List, NamedTuple, Optional, Sequence, Set

from tpujob.agent.attempts import other_attempts, remove_leftovers
from tpujob.agent.base import Failure, read_json, remove_file, write_json
from tpujob.agent.folders import CONTAINERS, EPOCH, KEPT_WORK, ROOT
from tpujob.agent.processes import (
    EMULATED_HOST,
    command_of,
    end_all,
    free_devices,
    output_of,
    process_table,
    read_proc,
    sudo,
)
from tpujob.agent.setup import first_boot
from tpujob.agent.setup.mounts import mounted, unmount_all

USER = "tpujob"  #: the user of tpujob on real hosts
PRODUCT = "/sys/class/dmi/id/product_name"
LIMIT = 50.0  #: seconds for one command
SHIPPING = 15.0  #: seconds that attempts get to upload the rest of their logs
GRACE = 2.0  #: seconds that processes get to end
BOOT = "/proc/sys/kernel/random/boot_id"
KERNEL_THREAD = 0x00200000  #: a flag of a process in `/proc/PID/stat`
#: folders with locks, crashes, crontabs and `at` jobs, of which goes what is newer than the first boot
SPOOLS = (
    *("/run/lock", "/var/crash", "/var/lib/apport/coredump", "/var/lib/systemd/linger"),
    *("/var/spool/cron", "/tmp/snap-private-tmp"),  # noqa: S108
)
#: folders with units that only live until the machine stops
UNITS = ("/run/systemd/transient", "/run/systemd/system")
IN_MEMORY = (
    "tmpfs",
    "devtmpfs",
    "hugetlbfs",
    "overlay",
    "ramfs",
)  #: file systems without a device of their own
#: paths that the system itself writes to
SYSTEM = "/(boot|etc|proc|run|snap|sys|usr|var)/.*"
#: paths below SYSTEM that only users write to
ADDED = (
    "/(usr/local|var/(local|opt|www)|var/lib/docker/image/.*/imagedb/content"
    "|var/lib/(docker/)?containerd/.*/blobs)/.*"
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


def record_first_boot() -> None:
    """Record what a real host is like before its first job, as far as this user may do that."""
    with contextlib.suppress(Failure, KeyError):  # KeyError: a user without an account
        host = _this_host()
        if host.real:
            first_boot.record(host.run)


def _this_host() -> _Host:
    """Return the part of this machine that belongs to the host. Raises Failure if that is not certain."""
    home, account = os.path.realpath(os.path.expanduser("~")), pwd.getpwuid(os.getuid())
    if EMULATED_HOST in os.environ:
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
        _empty(host, folder, "-name tpujob -o -name memory", "-uid", str(os.getuid()))


def _wipe_all(host: _Host, key: str) -> None:
    """Wipe the host for a job of another owner."""
    if os.path.isdir(CONTAINERS):
        raise Failure("containers have run here, and may have left images and volumes")
    before = first_boot.read_record(host.run) if host.real else None
    until = time.monotonic() + SHIPPING
    while any(attempt["live"] for attempt in other_attempts()) and time.monotonic() < until:
        time.sleep(0.1)
    ssh = os.path.join(host.home, ".ssh")
    for _ in range(2):  # running processes may undo the first round
        _authorize_only(ssh, key)
        if host.real:
            _remove_starts(host)
        if end_all(lambda: _find_processes(before), GRACE):
            raise Failure("processes of the last job do not end")
    unmount_all(lambda _: None)
    if before is not None:
        for path in first_boot.removable_mounts(before, first_boot.observe(host.run)):
            host.run(["umount", "--lazy", "--", path])
    # caches, too: uv links files into environments, so an edit there may have changed the cached file
    kept = "-name agent-???????? -size -64M -o -name epoch.json -o -name command.lock"
    _empty(host, ROOT, "-type f ( %s )" % kept)
    _remove_changed_agents()
    _empty(host, ssh, "-type f -name authorized_keys")
    _empty(host, host.home, "-type d ( -name .tpujob -o -name .ssh )")
    for folder in host.scratch:
        _empty(host, folder, _folders_of_services() if host.real else "")
    if before is not None:
        uid = str(os.getuid())
        host.run(["ipcrm", "--all"])
        for folder in ("/run/user/" + uid, "/dev/mqueue"):
            _empty(host, folder)
        host.run(["find", "/run", "-xdev", "-uid", uid, "!", "-type", "d", "-delete"])
        host.run(["rm", "-f", "--", *glob.glob("/var/log/journal/*/user-%s[.@]*" % uid)])
        _remove_newer(host, ["/root", *SPOOLS])
        _check_elsewhere(host)
        for text in first_boot.differences(before, first_boot.observe(host.run)):
            raise Failure("the last job may have left more on this host: %.200r" % text)


def _remove_starts(host: _Host) -> None:
    """Remove what would start programs later: crontabs, `at` jobs, timers of `systemd-run`."""
    _remove_newer(host, SPOOLS)
    folders = list(filter(os.path.isdir, UNITS))
    # a slice may be that of this session; scopes end with their processes
    tests = "-maxdepth 1 -type f -cnewer %s ! -name *.scope ! -name *.slice" % first_boot.RECORD
    find = ["find", *folders, *tests.split()]
    names = host.run([*find, "-printf", "%f\\n"]) if folders else b""
    if names:
        host.run(["systemctl", "stop", "--", *names.decode().split()])
        host.run([*find, "-delete"])


def _remove_newer(host: _Host, folders: Sequence[str]) -> None:
    """Delete what is newer in these folders than the first boot. Raises Failure if something stays."""
    tests = "-xdev -ignore_readdir_race ! -type d -cnewer %s -delete" % first_boot.RECORD
    for folder in filter(os.path.isdir, folders):
        if host.run(["find", folder, *tests.split()]) is None:
            raise Failure("%s could not be emptied" % folder)


def _remove_changed_agents() -> None:
    """Delete agents that are not what their names say (`adapters/ssh/agent_calls.py`)."""
    for path in glob.glob(os.path.join(glob.escape(ROOT), "agent-*")):
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if os.path.basename(path) != "agent-" + digest[:8]:
            remove_file(path)


def _folders_of_services() -> str:
    """Return the test of `find` for temporary folders of the system's services."""
    with open(BOOT, encoding="ascii") as file:
        boot = file.read().strip().replace("-", "")
    return "-uid 0 ( -name systemd-private-%s-* -o -name snap-private-tmp )" % boot


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


def _find_processes(before: Optional[first_boot.Facts]) -> Set[int]:
    """Return the processes of the host, except this process and its ancestors: on a real host those of this user, and
    all that are not of the system; on an emulated host (None) those of this user with its variable."""
    marker = b"\0%s=%s\0" % (EMULATED_HOST.encode(), os.fsencode(os.environ.get(EMULATED_HOST, "")))
    ancestors, table, pid = {0}, process_table(), os.getpid()
    if before is not None and 1 not in table:
        raise Failure("the processes of other users cannot be seen on this host")
    while pid not in ancestors:
        ancestors.add(pid)
        pid = int(table[pid][1]) if pid in table else 0
    pids: Set[int] = set()
    for pid in table.keys() - ancestors:
        with contextlib.suppress(OSError):
            is_ours = os.stat("/proc/%d" % pid).st_uid == os.getuid()
            if before is None:
                is_ours = is_ours and marker in b"\0" + read_proc(pid, "environ")
            elif not is_ours and not int(table[pid][6]) & KERNEL_THREAD:
                start, cgroup = table[pid][19].decode(), read_proc(pid, "cgroup").decode()
                is_ours = not first_boot.is_of_system(pid, start, command_of(pid), cgroup, before)
            if is_ours:
                pids.add(pid)
    return pids


def _empty(host: _Host, folder: str, keep: str = "", *tests: str) -> None:
    """Delete the content of a folder, except what passes the tests `keep` of `find`, or fails `tests`. Raises Failure
    if something stays."""
    if os.path.islink(folder):
        raise Failure("%s is a link" % folder)
    if any(path.startswith(os.path.realpath(folder) + os.sep) for path in mounted()):
        raise Failure("something is mounted in %s" % folder)
    if os.path.isdir(folder):
        find = ["find", folder, "-ignore_readdir_race", "-mindepth", "1", "-maxdepth", "1", *tests]
        if keep:
            find += ["!", "(", *keep.split(), ")"]
        host.run([*find, "-exec", "rm", "-rf", "--one-file-system", "--", "{}", "+"])
        if host.run([*find, "-print", "-quit"]) != b"":
            raise Failure("%s could not be emptied" % folder)


def _check_elsewhere(host: _Host) -> None:
    """Raise Failure for leftovers that a wipe cannot delete: a file newer than the first boot that belongs to this user
    or lies outside the system's paths."""
    disks = [
        path
        for path, (device, kind) in mounted().items()
        if kind in IN_MEMORY or (device.startswith("/dev/") and kind != "squashfs")
    ]
    find = ["find", "/", *disks, "-xdev", "-ignore_readdir_race", "-regextype", "posix-extended"]
    for path in (host.home, "/run", *host.scratch):
        find += ["(", "-path", path, "-o", "-path", path + "/*", ")", "-prune", "-o"]
    tests = "-cnewer %s ( -uid %d -o -type f -size +0 ( ! -regex %s -o -regex %s ) ) -print -quit"
    leftover = host.run([*find, *(tests % (first_boot.RECORD, os.getuid(), SYSTEM, ADDED)).split()])
    if leftover != b"":
        raise Failure("the last job may have left more on this host: %.200r" % leftover)
