"""Hosts of a bundled program without its imports, which take longer than most of its runs.

`python -m tests.support.warm` has imported all of it, and forks one host after the other. What happens after the
imports is the program's own.

On its standard input, a line of JSON each: a host to start, answered with its process id; or the id of one, answered
with its exit code, or null while it runs.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: In XLA_FLAGS: programs for CPUs compile in a sixth of the time, and run slower.
IN_HASTE = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


class Warm:
    """The process that forks hosts. It ends with `close`, or with its parent."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.warm"],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, module: str, flags: Sequence[str], env: Mapping[str, str], log: Path) -> Forked:
        """Run `python -m MODULE FLAGS` with that environment; its output goes to the log file."""
        order = {"module": module, "flags": flags, "env": {**env}, "log": str(log)}
        return Forked(self, module, self.ask(order))

    def ask(self, order: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class Forked:
    """A host with the interface of `subprocess.Popen`."""

    def __init__(self, warm: Warm, module: str, pid: int) -> None:
        self.warm, self.module, self.pid = warm, module, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.warm.ask(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.module, timeout or 0.0)
            time.sleep(0.01)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def main() -> None:
    _import()
    for line in sys.stdin:
        order = json.loads(line)
        if isinstance(order, int):
            pid, status = os.waitpid(order, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork() or _become(**order)
        print(json.dumps(answer), flush=True)


def _import() -> None:
    """Import the programs; no import starts a thread or chooses devices."""
    gc.disable()
    import grain

    from workloads.data import packed
    from workloads.frame import loop

    assert all((grain, packed, loop))
    gc.freeze()
    gc.enable()


def _look_there_too(path: str) -> None:
    """Search `path` for modules, as a new process does, which has not imported `workloads` yet."""
    import workloads

    places = [place for place in path.split(os.pathsep) if place]
    sys.path[:0] = places
    workloads.__path__.extend(os.path.join(place, "workloads") for place in places)


def _become(module: str, flags: list[str], env: dict[str, str], log: str) -> NoReturn:
    try:
        import jax

        os.environ.clear()
        os.environ.update(env)
        _look_there_too(env.get("PYTHONPATH", ""))
        jax.config.update("jax_num_cpu_devices", int(env["JAX_NUM_CPU_DEVICES"]))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, number)
        sys.argv = [module, *flags]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        os._exit(70)  # it ends by itself, and never gets here


if __name__ == "__main__":
    main()
