"""Finds the processes of an attempt and of the devices, and ends them; calls sudo for what belongs to root."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import re
import shutil
import signal
import subprocess
import time
from typing import Callable, Dict, List, Optional, Set

from tpujob.agent.base import Failure, remove_file
from tpujob.contract import OUT

#: variable of every process of an emulated host, `FARM/SLICE/HOST/`; a host of the cloud has none
EMULATED_HOST = "TPUJOB_EMULATED_HOST"

Find = Callable[[], Set[int]]  #: returns the pids of running processes

KILL_PATIENCE = 30.0  #: most seconds from SIGKILL to a process's end and its device's release


def read_proc(pid: int, name: str) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""


def command_of(pid: int) -> str:
    """Return the command name of a process; empty: it has ended."""
    return read_proc(pid, "comm").decode("utf-8", "replace").strip()


def process_table() -> Dict[int, List[bytes]]:
    """Return the fields of `/proc/PID/stat`, from the state on, of each live process."""
    table: Dict[int, List[bytes]] = {}
    for pid in _pids():
        # the name, in parentheses, may have any characters: fields are counted from its end
        fields = read_proc(pid, "stat").rpartition(b")")[2].split()
        if fields and fields[0] not in (b"Z", b"X"):
            table[pid] = fields
    return table


def _pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def in_attempt(pid: int, folder: str) -> bool:
    """Return whether the process runs and has the attempt's folder in its environment."""
    return _marker(folder) in b"\0" + read_proc(pid, "environ")


def _marker(folder: str) -> bytes:
    return b"\0" + OUT.encode() + b"=" + os.fsencode(folder) + b"/"


def attempt_processes(folder: str, session: int = 0) -> Set[int]:
    """Return the live processes of an attempt, or of all attempts if `folder` is their parent. These are processes
    with the folder in their environment, processes of the session, and the descendants of both, except this process."""
    marker = _marker(folder)
    parents: Dict[int, int] = {}
    pids: Set[int] = set()
    for pid, fields in process_table().items():
        parents[pid] = int(fields[1])
        in_session = session and int(fields[3]) == session
        if in_session or marker in b"\0" + read_proc(pid, "environ"):
            pids.add(pid)
    while True:
        children = {pid for pid, parent in parents.items() if parent in pids} - pids
        if not children:
            return pids - {os.getpid()}
        pids |= children


def send(pids: Set[int], number: int) -> None:
    """Send a signal, also to root's processes where `sudo` allows it: a program may be `sudo python train.py`."""
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
    """Send SIGTERM, wait up to `grace` seconds, then send SIGKILL for up to KILL_PATIENCE. Return the pids left."""
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
    """End the processes that hold the TPU, then delete its lock file. Raises Failure TPU_BUSY."""
    left = end_all(lambda: holders(device_files()), grace)
    left |= end_all(lambda: holders_as_root(device_files()), grace, as_root=True)
    if left:
        names = ["%d (%s)" % (pid, command_of(pid)) for pid in left]
        raise Failure("the TPU is still held by process %s" % ", ".join(sorted(names)), "TPU_BUSY")
    # `tempfile.gettempdir` fails on a full disk
    lock = os.path.join(os.environ.get("TMPDIR") or "/tmp", "libtpu_lockfile")  # noqa: S108, libtpu's
    try:
        remove_file(lock)
    except OSError:  # owned by root
        output_of(sudo(["rm", "-f", lock]), 10)


def device_files() -> Set[str]:
    """Return the device files of the TPU. `TPUJOB_DEVICES` holds patterns with `:` between them."""
    patterns = os.environ.get("TPUJOB_DEVICES", "/dev/accel*:/dev/vfio/*").split(":")
    return {os.path.realpath(name) for pattern in patterns for name in glob.glob(pattern)}


def holders(files: Set[str]) -> Set[int]:
    """Return the processes that have one of the files open, if this user may see that."""
    pids: Set[int] = set()
    for pid in _pids() if files else ():
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc/%d/fd" % pid):
                with contextlib.suppress(OSError):
                    if os.readlink("/proc/%d/fd/%s" % (pid, name)) in files:
                        pids.add(pid)
    return pids - {os.getpid()}


def holders_as_root(files: Set[str]) -> Set[int]:
    """Return the processes of any user that have one of the files open, where `sudo` allows it."""
    tests = [word for name in sorted(files) for word in ("-o", "-lname", name)][1:]
    find = sudo(["find", "/proc", "-mindepth", "3", "-maxdepth", "3", *tests]) if tests else []
    listing = output_of(find, 20) or b""  # `find` fails whenever a process ends meanwhile
    return {int(pid) for pid in re.findall(rb"^/proc/(\d+)/fd/", listing, re.M)}


def send_as_root(pids: Set[int], number: int) -> None:
    if pids:
        output_of(sudo(["kill", "-%d" % number, *map(str, sorted(pids))]), 10)


def make_empty(path: str) -> None:
    """Create the folder, or delete all that is in it, also files of root where `sudo` allows it. Raises OSError."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        output_of(sudo(["rm", "-rf", "--", path]), 60)
    os.makedirs(path)


def sudo(argv: List[str]) -> List[str]:
    """Return `argv` with sudo and no password prompt; empty for root, or where sudo does not allow it."""
    return ["sudo", "-n", "--", *argv] if os.geteuid() != 0 and _may_sudo() else []


@functools.lru_cache(maxsize=None)
def _may_sudo() -> bool:
    return output_of(["sudo", "-n", "--", "echo", "yes"], 5) == b"yes\n"


def output_of(argv: List[str], patience: float) -> Optional[bytes]:
    """Return the output of a command, whatever its exit code; None: it could not be started, or took too long."""
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
        abandon(child)
        return None


def abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill the child, and wait a second at most, as root's processes and processes in disk I/O do not end."""
    with contextlib.suppress(PermissionError):
        child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1)
    if child.stdout:
        child.stdout.close()


def kernel_kills() -> int:
    """Return the number of processes that the kernel has killed for want of memory since boot."""
    try:
        with open(os.environ.get("TPUJOB_VMSTAT") or "/proc/vmstat", encoding="ascii") as file:
            return int(re.search(r"^oom_kill (\d+)", file.read(), re.M).group(1))  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return 0
