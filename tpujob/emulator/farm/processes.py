"""Finding and signalling the processes of an emulated host, however far they have detached themselves.

Every process of a host carries a marker in its environment, which `setsid`, `nohup` and double forks keep. A child
that dropped its environment is found through its parent, and remembered. Signals go through pidfds that are checked
against the start time, so that a recycled pid is never hit.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from workloads.contract import OUT

MARKER = "TPUJOB_EMULATED_HOST"
_PROGRAM = (
    OUT.encode() + b"="
)  #: what the agent gives to all that it runs, and does not have itself
SLOW_SLICE = 0.05  #: seconds that a slowed host runs for at a time


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    started: int  #: clock ticks since boot; with the pid it names one process for good


_Owned = dict[int, tuple[Process, str]]  #: pid -> process, marker
_Others = dict[int, tuple[int, Process]]  #: pid -> parent, process


class Census:
    """The processes of one farm, by marker: `<farm>/<slice>/<host>/`."""

    def __init__(self, farm: str) -> None:
        self._needle = f"{MARKER}={farm}/".encode()
        self._remembered: dict[Process, str] = {}  #: as of the last look

    def find(self, prefix: str | tuple[str, ...]) -> dict[str, list[Process]]:
        """Every live process whose marker starts with `prefix` (or one of them), by marker. Zombies do not count."""
        owner, others = self._look()
        kin = {p: _inherited(p.pid, others, owner) for _, p in others.values()}
        everyone = dict(owner.values()) | {p: marker for p, marker in kin.items() if marker}
        self._remembered = everyone  # gone ones drop out: each look starts from what lives
        found: dict[str, list[Process]] = {}
        for process, marker in everyone.items():
            if marker.startswith(prefix):
                found.setdefault(marker, []).append(process)
        return found

    def program(self, prefix: str) -> list[Process]:
        """Those that the agents there have started, and their descendants; neither agents nor sessions."""
        everyone = [p for group in self.find(prefix).values() for p in group]
        parents = {p.pid: stat[0] for p in everyone if (stat := _stat(p.pid))}
        found = {p.pid for p in everyone if _variable(p.pid, _PROGRAM)}
        while born := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= born
        return [p for p in everyone if p.pid in found]

    async def kill(self, prefix: str | tuple[str, ...]) -> None:
        """SIGKILL until none is left: a process may fork between the look and the signal. Raises TimeoutError after
        10 s, which only a process stuck in the kernel brings about."""
        async with asyncio.timeout(10):
            while groups := self.find(prefix):
                for processes in groups.values():
                    send(processes, signal.SIGKILL)
                await asyncio.sleep(0.01)

    def terminate(self, prefix: str) -> None:
        """SIGTERM to every process; a stopped one is woken, so that it can see it."""
        self._send(prefix, signal.SIGTERM, signal.SIGCONT)

    async def slow_down(self, prefix: str, factor: float) -> None:
        """Until cancelled, let the processes run for 1/`factor` of the time; then they all run again."""
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
            parent, process = stat[0], Process(pid, stat[1])
            marker = _variable(pid, self._needle) or self._remembered.get(process, "")
            if marker:
                owner[pid] = process, marker
            else:
                others[pid] = parent, process
        return owner, others


def send(processes: Iterable[Process], *signals: signal.Signals) -> None:
    """Send the signals, in order, to each process that is still the one that was found."""
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


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start time; None: gone, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name, in parentheses, may hold anything: fields are counted from the last one
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def memory(process: Process) -> int:
    """Resident pages; 0: gone."""
    try:
        with open(f"/proc/{process.pid}/statm", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _variable(pid: int, needle: bytes) -> str:
    """The value of the environment variable that begins like this; empty: there is none."""
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
    """The marker of the nearest ancestor that has one."""
    for _ in range(64):
        if pid in owner:
            return owner[pid][1]
        if pid not in others:
            return ""
        pid = others[pid][0]
    return ""
