"""Finds and signals the processes of an emulated host, also detached ones.

Every process of a host carries a marker in its environment, which survives `setsid`, `nohup` and double forks. A child
that dropped its environment is found through its parent, and remembered. Signals go through pidfds that are checked
against the start time, so a recycled pid is never hit.
"""

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from workloads.contract import OUT

MARKER = "TPUJOB_EMULATED_HOST"
_PROGRAM = f"{OUT}=".encode()  #: the agent sets it for its programs, not for itself
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
        self._remembered: dict[HostProcess, str] = {}  #: by the last look

    def find(self, prefix: str | tuple[str, ...]) -> dict[str, list[HostProcess]]:
        """Live processes whose marker starts with `prefix` (or one of them), by marker; no zombies."""
        owner, others = self._look()
        kin = {p: _inherited(p.pid, others, owner) for _, p in others.values()}
        everyone = dict(owner.values()) | {p: marker for p, marker in kin.items() if marker}
        self._remembered = everyone  # without the ones that ended
        found: dict[str, list[HostProcess]] = {}
        for process, marker in everyone.items():
            if marker.startswith(prefix):
                found.setdefault(marker, []).append(process)
        return found

    def program(self, prefix: str) -> list[HostProcess]:
        """The processes that agents there have started, with descendants; neither agents nor sessions."""
        everyone = [p for group in self.find(prefix).values() for p in group]
        parents = {p.pid: stat[0] for p in everyone if (stat := _stat(p.pid))}
        found = {p.pid for p in everyone if _variable(p.pid, _PROGRAM)}
        while born := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= born
        return [p for p in everyone if p.pid in found]

    async def kill(self, prefix: str | tuple[str, ...]) -> None:
        """SIGKILL until none is left: a process may fork between look and signal. Raises TimeoutError after 10 s, if a
        process is stuck in the kernel."""
        async with asyncio.timeout(10):
            while groups := self.find(prefix):
                for processes in groups.values():
                    send(processes, signal.SIGKILL)
                await asyncio.sleep(0.01)

    def terminate(self, prefix: str) -> None:
        """SIGTERM to every process; stopped ones are continued, so they receive it."""
        self._send(prefix, signal.SIGTERM, signal.SIGCONT)

    async def slow_down(self, prefix: str, factor: float) -> None:
        """Until cancelled, let the processes run for 1/`factor` of the time; then continue them all."""
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
    """Parent, start time and state; None: gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name, in parentheses, may hold anything: fields are counted from the last one
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]), fields[0])


def is_stopped(process: HostProcess) -> bool:
    stat = _stat(process.pid)
    return stat is not None and stat[1:] == (process.started, b"T")


def memory(process: HostProcess) -> int:
    """Resident pages; 0: gone."""
    try:
        with open(f"/proc/{process.pid}/statm", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _variable(pid: int, needle: bytes) -> str:
    """The value of the environment variable that starts with `needle`; empty: there is none."""
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
