"""Runs the child process of a target and returns a finding for every outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from workloads.check.errors import last_line
from workloads.check.finding import GIB, Finding, Fit, Order
from workloads.check.topologies import target

#: CPU seconds after which a compilation is given up: 8B parameters take some 100. Time in which a busy machine does not
#: run the compiler does not count.
CPU_TIMEOUT = 1200
#: seconds in which a compilation takes less than one CPU second, after which it is given up: it waits for something
IDLE = 300.0
#: seconds between two lines of progress
PROGRESS_EVERY = 30.0

#: What the described client needs, and what keeps it from looking for a TPU.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_LOG_DIR": "disabled",  # else it leaves files in the folder for temporary ones
    # without these two it complains; their values change nothing
    "TPU_ACCELERATOR_TYPE": "v4-16",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
#: A program that was compiled for a described slice cannot be read back from JAX's cache without a TPU.
_DROPPED = ("JAX_COMPILATION_CACHE_DIR", "TPUJOB_CACHE", "PYTHONSAFEPATH")  # start.py sets the path
_START = Path(__file__).with_name("start.py")


def environment(own: Mapping[str, str], *, has_tpu: bool) -> dict[str, str]:
    """Return a child's environment. The flags of a real run (LIBTPU_INIT_ARGS, XLA_FLAGS) stay: they change the
    program."""
    inherited = {name: value for name, value in own.items() if name not in _DROPPED}
    several = {} if has_tpu else {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}  # else two wait for one lock
    return {**inherited, **_ENVIRONMENT, **several}


def check(
    order: Order, patience: int = CPU_TIMEOUT, every: float = PROGRESS_EVERY, idle: float = IDLE
) -> Finding:
    """Compile in a child, for at most `patience` CPU seconds, and until it uses none for `idle` seconds. Prints a line
    of progress every `every` seconds. A failure of the compiler becomes a finding, not an exception."""
    has_tpu = any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        order_path, finding_path, log_path = (
            Path(folder, name) for name in ("order", "finding", "log")
        )
        order_path.write_text(order.to_json(), encoding="utf-8")
        command = [order.python or sys.executable, str(_START), str(order_path), str(finding_path)]
        command += [str(os.getpid()), str(patience)]
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                command,
                env=environment({**os.environ, **order.environment}, has_tpu=has_tpu),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                code = _wait(process, order.target, every, idle)
            finally:
                process.kill()
                process.wait()
        if code == 0 and finding_path.exists():
            return TypeAdapter(Finding).validate_json(finding_path.read_bytes())
        if code is None:
            return _failed(order, "unknown", f"not compiled: no CPU time was used for {idle:.0f} s")
        log = log_path.read_text(encoding="utf-8", errors="replace")
        return _failed(order, *verdict(code, log, patience))


def _wait(process: subprocess.Popen[bytes], target: str, every: float, idle: float) -> int | None:
    """Wait for the child, report progress, and return its exit code; None if it used no CPU time for `idle` seconds."""
    started = moved = time.monotonic()
    used = 0.0
    while True:
        try:
            return process.wait(every)
        except subprocess.TimeoutExpired:
            now, spent = time.monotonic(), _cpu_seconds(process.pid)
            if spent >= used + 1:
                used, moved = spent, now
            elif now - moved >= idle:
                return None
            passed = now - started
            sys.stderr.write(f"still compiling for {target} after {passed:.0f} s ...\n")


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used; Linux only, as the compiler."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _failed(order: Order, fit: Fit, reason: str) -> Finding:
    limit = int(target(order.target).chip.usable_hbm_gib * GIB)
    return Finding(target=order.target, fit=fit, reason=reason, limit_bytes=limit)


def verdict(code: int, log: str, patience: int) -> tuple[Fit, str]:
    """Return fit and reason for a child that wrote no finding."""
    if code == -signal.SIGXCPU:
        return "unknown", f"not compiled in {patience} s of CPU time; --patience allows more"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "unknown", "the compiler was killed: this machine has too little memory for it"
    if code < 0 or code > 128:
        name = signal.Signals(-code if code < 0 else code - 128).name
        return "crashed", f"the compiler crashed ({name}), which says nothing about memory"
    if "libtpu multi-process lockfile" in log:
        return "unknown", "another process of this machine uses libtpu"
    return "unknown", last_line(log)
