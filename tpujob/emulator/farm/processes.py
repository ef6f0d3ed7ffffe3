"""Finds and signals the processes of an emulated host, also detached ones.

Every process of a host carries a marker in its environment, which survives `setsid`, `nohup` and double forks. A child
that dropped its environment is found through its parent, and remembered. Signals go through pidfds that are checked
against the start time, so a recycled pid never gets a signal.
"""

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from tpujob.contract import OUT

MARKER = "TPUJOB_EMULATED_HOST"
_PROGRAM = f"{OUT}=".encode()  #: variable that the agent sets for its programs, not for itself
SLOW_SLICE = 0.05  #: seconds that a slowed host runs at a time


@dataclass(frozen=True, slots=True)
class HostProcess:
    pid: int
    started: int  #: clock ticks since boot; unique together with the pid


_Owned = dict[int, tuple[HostProcess, str]]  #: pid -> process, marker
_Others = dict[int, tuple[int, HostProcess]]  #: pid -> parent, process


class Census:
    """The processes of one farm, by marker: `<farm>/<slice>/<host>/`."""

    def __init__(self, farm: str) -> None:
        self._needle = f"{MARKER}={farm}/".encode()
        self._remembered: dict[HostProcess, str] = {}  #: markers at the last look

    def find(self, prefix: str | tuple[str, ...]) -> dict[str, list[HostProcess]]:
        """Return live processes whose marker starts with `prefix` (or one of several), by marker; no zombies."""
        owner, others = self._look()
        kin = {p: _inherited(p.pid, others, owner) for _, p in others.values()}
        everyone = dict(owner.values()) | {p: marker for p, marker in kin.items() if marker}
        self._remembered = everyone  # without processes that ended
        by_marker: dict[str, list[HostProcess]] = {}
        for process, marker in everyone.items():
            if marker.startswith(prefix):
                by_marker.setdefault(marker, []).append(process)
        return by_marker

    def program(self, prefix: str) -> list[HostProcess]:
        """Return the processes that agents have started, with descendants; neither agents nor sessions."""
        everyone = [p for group in self.find(prefix).values() for p in group]
        parents = {p.pid: stat[0] for p in everyone if (stat := _stat(p.pid))}
        pids = {p.pid for p in everyone if _variable(p.pid, _PROGRAM)}
        while born := {pid for pid, parent in parents.items() if parent in pids} - pids:
            pids |= born
        return [p for p in everyone if p.pid in pids]

    async def kill(self, prefix: str | tuple[str, ...]) -> None:
        """Send SIGKILL until no process is left, since a process may fork between look and signal. Raise TimeoutError
        after 10 s, if a process is stuck in the kernel."""
        async with asyncio.timeout(10):
            while groups := self.find(prefix):
                for processes in groups.values():
                    send(processes, signal.SIGKILL)
                await asyncio.sleep(0.01)

    def terminate(self, prefix: str) -> None:
        """Send SIGTERM to every process, and SIGCONT, so that stopped processes receive it."""
        self._send(prefix, signal.SIGTERM, signal.SIGCONT)

    async def slow_down(self, prefix: str, factor: float) -> None:
        """Let the processes run for 1/`factor` of the time until cancelled; then continue them all."""
        try:
            while True:
                self._send(prefix, signal.SIGCONT)
                await asyncio.sleep(SLOW_SLICE)
                self._send(prefix, signal.SIGSTOP)
                await asyncio.sleep(SLOW_SLICE * (factor - 1))
        finally:
            self._send(prefix, signal.SIGCONT)

    def _send(self, prefix: str, *signals: signal.Signals) -> None:
        for processes in self.find(prefix).values():
            send(processes, *signals)

    def _look(self) -> tuple[_Owned, _Others]:
        owner: _Owned = {}
        others: _Others = {}
        for pid in _pids():
            stat = _stat(pid)
            if stat is None:
                continue
            parent, process = stat[0], HostProcess(pid, stat[1])
            marker = _variable(pid, self._needle) or self._remembered.get(process, "")
            if marker:
                owner[pid] = process, marker
            else:
                others[pid] = parent, process
        return owner, others


def send(processes: Iterable[HostProcess], *signals: signal.Signals) -> None:
    """Send the signals, in order, to each process unless its pid was recycled."""
    for process in processes:
        try:
            fd = os.pidfd_open(process.pid)
        except (ProcessLookupError, PermissionError):
            continue
        try:
            stat = _stat(process.pid)
            if stat is not None and stat[1] == process.started:
                for number in signals:
                    signal.pidfd_send_signal(fd, number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            os.close(fd)


def _pids() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def _stat(pid: int) -> tuple[int, int, bytes] | None:
    """Return parent, start time and state; None for an ended process or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # count fields from the last parenthesis: the name, in parentheses, may hold any character
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]), fields[0])


def is_stopped(process: HostProcess) -> bool:
    stat = _stat(process.pid)
    return stat is not None and stat[1:] == (process.started, b"T")


def memory(process: HostProcess) -> int:
    """Return the number of resident pages; 0 for an ended process."""
    try:
        with open(f"/proc/{process.pid}/statm", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _variable(pid: int, needle: bytes) -> str:
    """Return the value of the environment variable that starts with `needle`; empty: the process has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    for item in environ.split(b"\0") if needle in environ else ():
        if item.startswith(needle):
            return item.partition(b"=")[2].decode(errors="replace")
    return ""


def _inherited(pid: int, others: _Others, owner: _Owned) -> str:
    """Return the marker of the nearest ancestor that has a marker; empty: none has."""
    for _ in range(64):
        if pid in owner:
            return owner[pid][1]
        if pid not in others:
            return ""
        pid = others[pid][0]
    return ""
