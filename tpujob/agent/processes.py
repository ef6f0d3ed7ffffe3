"""Processes of this host: which belong to an attempt, which hold a device, how they are ended."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import re
import signal
import subprocess
import time
from typing import Callable, Dict, List, Optional, Set

from tpujob.agent.base import Failure, remove_file
from workloads.contract import OUT

Find = Callable[[], Set[int]]  #: the processes that there are now

KILL_PATIENCE = 30.0  #: seconds for a process to go after SIGKILL, and for a device to be let go


def read_proc(pid: int, name: str) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""


def command_of(pid: int) -> str:
    """Return the command line of a process; empty: it is gone."""
    return read_proc(pid, "comm").decode("utf-8", "replace").strip()


def stats() -> Dict[int, List[bytes]]:
    """The fields of the table of processes, from the state on, of those that live."""
    found: Dict[int, List[bytes]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        # the name, in parentheses, may hold anything: fields are counted from its end
        fields = read_proc(pid, "stat").rpartition(b")")[2].split()
        if fields and fields[0] not in (b"Z", b"X"):
            found[pid] = fields
    return found


def family(folder: str, session: int = 0) -> Set[int]:
    """The live processes of an attempt (or, with the folder above, of all): those that carry its folder in their
    environment, those of its session, and the descendants of both. Never this process."""
    marker = OUT.encode() + b"=" + os.fsencode(folder) + b"/"
    parents: Dict[int, int] = {}
    found: Set[int] = set()
    for pid, fields in stats().items():
        parents[pid] = int(fields[1])
        in_session = session and int(fields[3]) == session
        environment = b"\0" + read_proc(pid, "environ")
        if in_session or b"\0" + marker in environment:
            found.add(pid)
    while True:
        born = {pid for pid, parent in parents.items() if parent in found} - found
        if not born:
            return found - {os.getpid()}
        found |= born


def send(pids: Set[int], number: int) -> None:
    """Signal them; root's too where `sudo` allows it, as a program may be `sudo python train.py`."""
    refused: Set[int] = set()
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            refused.add(pid)
    send_as_root(refused, number)


def end_all(find: Find, grace: float, as_root: bool = False) -> Set[int]:
    """Send SIGTERM, wait up to `grace` seconds, send SIGKILL until none is left; return those that remain."""
    signal_all, pause = (send_as_root, 0.5) if as_root else (send, 0.05)
    left = find()
    signal_all(left, signal.SIGTERM)
    kill_at = time.monotonic() + grace
    while left and time.monotonic() < kill_at + KILL_PATIENCE:
        if time.monotonic() >= kill_at:
            signal_all(left, signal.SIGKILL)
        time.sleep(pause)
        left = find()
    return left


# Devices -------------------------------------------------------------------------------------------------------------


def free_devices(grace: float) -> None:
    """End what holds the TPU, then remove its lock file. Raises Failure TPU_BUSY."""
    left = end_all(lambda: holders(device_files()), grace)
    left |= end_all(lambda: hidden_holders(device_files()), grace, as_root=True)
    if left:
        names = ["%d (%s)" % (pid, command_of(pid)) for pid in left]
        raise Failure("the TPU is still held by process %s" % ", ".join(sorted(names)), "TPU_BUSY")
    # `tempfile` would look for room first, and find none on a full disk
    lock = os.path.join(os.environ.get("TMPDIR") or "/tmp", "libtpu_lockfile")  # noqa: S108, libtpu's
    try:
        remove_file(lock)
    except OSError:  # root's
        output_of(sudo(["rm", "-f", lock]), 10)


def device_files() -> Set[str]:
    """Return the device files of the TPU. `TPUJOB_DEVICES` holds patterns with `:` between them."""
    patterns = os.environ.get("TPUJOB_DEVICES", "/dev/accel*:/dev/vfio/*").split(":")
    return {os.path.realpath(name) for pattern in patterns for name in glob.glob(pattern)}


def holders(files: Set[str]) -> Set[int]:
    """Return the processes that hold one of these files open, as far as this user can see."""
    found: Set[int] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()) if files else ():
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc/%d/fd" % pid):
                with contextlib.suppress(OSError):
                    if os.readlink("/proc/%d/fd/%s" % (pid, name)) in files:
                        found.add(pid)
    return found - {os.getpid()}


def hidden_holders(files: Set[str]) -> Set[int]:
    """Return the same for other users' processes, where `sudo` allows it."""
    named = [word for name in sorted(files) for word in ("-o", "-lname", name)][1:]
    look = sudo(["find", "/proc", "-mindepth", "3", "-maxdepth", "3", *named]) if named else []
    listing = output_of(look, 20) or b""  # it fails whenever a process ends meanwhile
    return {int(pid) for pid in re.findall(rb"^/proc/(\d+)/fd/", listing, re.M)}


def send_as_root(pids: Set[int], number: int) -> None:
    if pids:
        output_of(sudo(["kill", "-%d" % number, *map(str, sorted(pids))]), 10)


def sudo(argv: List[str]) -> List[str]:
    """Return the command as root, without asking for a password; empty where that is impossible or not needed."""
    return ["sudo", "-n", "--", *argv] if os.geteuid() != 0 and _may_sudo() else []


@functools.lru_cache(maxsize=None)
def _may_sudo() -> bool:
    return output_of(["sudo", "-n", "--", "echo", "yes"], 5) == b"yes\n"


def output_of(argv: List[str], patience: float) -> Optional[bytes]:
    """Return what a command prints, however it ends. None: it could not be run, or took too long."""
    if not argv:
        return None
    try:
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        # in a session without a terminal sudo cannot ask for a password
        child = subprocess.Popen(argv, stdin=null, stdout=pipe, stderr=null, start_new_session=True)
    except OSError:
        return None
    try:
        return child.communicate(timeout=patience)[0]
    except subprocess.TimeoutExpired:
        give_up(child)
        return None


def give_up(child: subprocess.Popen[bytes]) -> None:
    """Kill it, and wait a moment at most: we cannot kill what runs as root, and what waits for a dead disk does not
    die."""
    with contextlib.suppress(PermissionError):
        child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1)
    if child.stdout:
        child.stdout.close()


def kernel_kills() -> int:
    """Return how many processes the kernel has killed for want of memory since boot."""
    try:
        with open(os.environ.get("TPUJOB_VMSTAT") or "/proc/vmstat", encoding="ascii") as file:
            return int(re.search(r"^oom_kill (\d+)", file.read(), re.M).group(1))  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return 0
