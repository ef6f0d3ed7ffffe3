"""Processes of this host: whose they are, who holds a device, and how they are ended."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import signal
import tempfile
import time
from typing import Callable, Dict, Set

from tpujob.agent.base import Failure

KILL_PATIENCE = 30.0  #: seconds for a process to go after SIGKILL, and for a device to be let go


def read_proc(pid: int, name: str) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""


def family(folder: str, session: int = 0) -> Set[int]:
    """The live processes of an attempt (or, with the folder above, of all): those that carry its folder in their
    environment, those of its session, and the descendants of both. Never this process."""
    marker = b"TPUJOB_OUT=" + os.fsencode(folder) + b"/"
    parents: Dict[int, int] = {}
    found: Set[int] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        # the name, in parentheses, may hold anything: fields are counted from its end
        fields = read_proc(pid, "stat").rpartition(b")")[2].split()
        if not fields or fields[0] in (b"Z", b"X"):
            continue
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


def holders(devices: str) -> Set[int]:
    """The processes that hold a device file open. `devices`: patterns with `:` between them."""
    files = {os.path.realpath(f) for pattern in devices.split(":") for f in glob.glob(pattern)}
    found: Set[int] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()) if files else ():
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc/%d/fd" % pid):
                with contextlib.suppress(OSError):
                    if os.readlink("/proc/%d/fd/%s" % (pid, name)) in files:
                        found.add(pid)
    return found - {os.getpid()}


def send(pids: Set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(find: Callable[[], Set[int]], grace: float) -> Set[int]:
    """SIGTERM, up to `grace` seconds, SIGKILL until none is left; returns those that stay, which is seldom."""
    left = find()
    send(left, signal.SIGTERM)
    kill_at = time.monotonic() + grace
    while left and time.monotonic() < kill_at + KILL_PATIENCE:
        if time.monotonic() >= kill_at:
            send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = find()
    return left


def free_devices(grace: float) -> None:
    """Nothing holds the TPU afterwards; only then its lock file is removed. Raises Failure TPU_BUSY."""
    devices = os.environ.get("TPUJOB_DEVICES", "/dev/accel*:/dev/vfio/*")
    left = end_all(lambda: holders(devices), grace)
    if left:
        names = [
            "%d (%s)" % (pid, read_proc(pid, "comm").decode("utf-8", "replace").strip())
            for pid in left
        ]
        raise Failure("the TPU is still held by process %s" % ", ".join(sorted(names)), "TPU_BUSY")
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(tempfile.gettempdir(), "libtpu_lockfile"))


def kernel_kills() -> int:
    """How many processes the kernel has killed for want of memory, since it was booted."""
    try:
        with open(os.environ.get("TPUJOB_VMSTAT") or "/proc/vmstat", encoding="ascii") as file:
            return int(re.search(r"^oom_kill (\d+)", file.read(), re.M).group(1))  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return 0
