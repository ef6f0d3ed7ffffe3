"""What the processes of a hanging program are doing: Python's stacks where they can be had, and what the kernel knows.
Nothing here disturbs a program that is well.
"""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import time
from typing import Dict, List, Set

from tpujob.agent.processes import output_of, read_proc, send, sudo
from tpujob.agent.upload import Log, Redactor

PROCESSES = 8  #: that are looked at; the first ones are the program's own
SPY_PATIENCE = 8.0  #: seconds for one process
DUMP_PATIENCE = 2.0  #: seconds for all that dump their own stacks
THREADS = 12  #: kinds of threads of one process that are listed


def collect(pids: Set[int], dumps: bool, log: Log, path: str) -> List[str]:
    """Return the stacks, the most telling first. `dumps`: the program keeps to the contract, so that SIGUSR1 makes it
    write its stacks to its log. `path`: where py-spy is looked for, which shows the stacks of any Python program."""
    chosen = sorted(pids)[:PROCESSES]
    lines = _spied(chosen, path)
    if not lines and dumps:
        lines = _dumped({pid for pid in chosen if _catches(pid, signal.SIGUSR1)}, log)
    lines += [line for pid in chosen for line in kernel_view(pid, log.redactor)]
    return [log.redactor.redact_text(line) for line in lines]


def kernel_view(pid: int, redactor: Redactor) -> List[str]:
    """The process and its threads, alike ones together. Its command line is cut, so secrets go first."""
    command = read_proc(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    if not command:
        return []
    kinds: Dict[str, int] = collections.Counter()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/%d/task" % pid):
            kinds[_thread(pid, name)] += 1
    most = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    head = "process %d: %s" % (pid, redactor.redact_text(command)[:200])
    return [head] + ["  %d x %s" % (count, kind) for kind, count in most[:THREADS]]


def _thread(pid: int, name: str) -> str:
    def read(what: str) -> str:
        return read_proc(pid, "task/%s/%s" % (name, what)).decode("utf-8", "replace").strip()

    state = read("stat").rpartition(")")[2].split()[:1]
    parts = ["%s in state %s" % (read("comm"), "".join(state) or "?")]
    wait, call = read("wchan"), read("syscall").split()[:1]
    parts += ["waits in %s" % wait] if wait not in ("", "0") else []
    parts += ["system call %s" % call[0]] if call and call[0].isdigit() else []
    return ", ".join(parts)


def _spied(pids: List[int], path: str) -> List[str]:
    spy = shutil.which("py-spy", path=path)
    lines: List[str] = []
    for pid in pids if spy else ():
        argv = [str(spy), "dump", "--pid", str(pid)]
        dump = output_of(argv, SPY_PATIENCE) or output_of(sudo(argv), SPY_PATIENCE) or b""
        text = dump.decode("utf-8", "replace").splitlines()
        lines += [line for line in text if line.strip() and not line.startswith("Python v")]
    return lines


def _catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for a signal: without one, most signals would end it."""
    for line in read_proc(pid, "status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _dumped(pids: Set[int], log: Log) -> List[str]:
    """Return what faulthandler writes, the thread that was at work first."""
    if not pids:
        return []
    mark = log.count
    lines: List[bytes] = []
    send(pids, signal.SIGUSR1)
    until = time.monotonic() + DUMP_PATIENCE
    while time.monotonic() < until:
        time.sleep(0.2)
        fresh = log.since(mark)
        if fresh and len(fresh) == len(lines):
            break  # nothing more comes
        lines = fresh
    text = [line.decode("utf-8", "replace") for line in lines]
    start = next((i for i, line in enumerate(text) if line.startswith("Current thread")), 0)
    return text[start:] + text[:start]
