"""Collects the stacks of a hanging program: Python's where possible, and the kernel's view of its threads. A healthy
program is not disturbed.
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

PROCESSES = 8  #: most processes that are examined, lowest pids first
SPY_PATIENCE = 8.0  #: seconds for py-spy on one process
DUMP_PATIENCE = 2.0  #: seconds for all processes that dump their own stacks
THREADS = 12  #: most kinds of threads that are listed for a process


def collect_stacks(pids: Set[int], dumps: bool, log: Log, path: str) -> List[str]:
    """Return the lines of the stacks, Python's first. `dumps`: the program keeps to the contract, so SIGUSR1 makes it
    write its stacks to its log. `path`: folders in which to find py-spy, which works for any Python program."""
    examined = sorted(pids)[:PROCESSES]
    lines = _dump_with_py_spy(examined, path)
    if not lines and dumps:
        lines = _request_dumps({pid for pid in examined if _handles(pid, signal.SIGUSR1)}, log)
    lines += [line for pid in examined for line in kernel_view(pid, log.redactor)]
    return [log.redactor.redact_text(line) for line in lines]


def kernel_view(pid: int, redactor: Redactor) -> List[str]:
    """Return a line on the process, without secrets, and a line for each kind of its threads."""
    command = read_proc(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    if not command:
        return []
    kinds: Dict[str, int] = collections.Counter()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/%d/task" % pid):
            kinds[_describe_thread(pid, name)] += 1
    by_count = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    head = "process %d: %s" % (pid, redactor.redact_text(command)[:200])
    return [head] + ["  %d x %s" % (count, kind) for kind, count in by_count[:THREADS]]


def _describe_thread(pid: int, name: str) -> str:
    def read(file: str) -> str:
        return read_proc(pid, "task/%s/%s" % (name, file)).decode("utf-8", "replace").strip()

    state = read("stat").rpartition(")")[2].split()[:1]
    parts = ["%s in state %s" % (read("comm"), "".join(state) or "?")]
    wait, call = read("wchan"), read("syscall").split()[:1]
    if wait not in ("", "0"):
        parts.append("waits in %s" % wait)
    if call and call[0].isdigit():
        parts.append("system call %s" % call[0])
    return ", ".join(parts)


def _dump_with_py_spy(pids: List[int], path: str) -> List[str]:
    spy = shutil.which("py-spy", path=path)
    lines: List[str] = []
    for pid in pids if spy else ():
        argv = [str(spy), "dump", "--pid", str(pid)]
        dump = output_of(argv, SPY_PATIENCE) or output_of(sudo(argv), SPY_PATIENCE) or b""
        text = dump.decode("utf-8", "replace").splitlines()
        lines += [line for line in text if line.strip() and not line.startswith("Python v")]
    return lines


def _handles(pid: int, number: int) -> bool:
    """Return whether the process has a handler for a signal: without one, most signals would end it."""
    for line in read_proc(pid, "status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _request_dumps(pids: Set[int], log: Log) -> List[str]:
    """Return the lines of faulthandler in the log after SIGUSR1, the current thread first."""
    if not pids:
        return []
    mark = log.count
    lines: List[bytes] = []
    send(pids, signal.SIGUSR1)
    until = time.monotonic() + DUMP_PATIENCE
    while time.monotonic() < until:
        time.sleep(0.2)
        new_lines = log.since(mark)
        if new_lines and len(new_lines) == len(lines):
            break  # the dump is complete
        lines = new_lines
    text = [line.decode("utf-8", "replace") for line in lines]
    start = next((i for i, line in enumerate(text) if line.startswith("Current thread")), 0)
    return text[start:] + text[:start]
