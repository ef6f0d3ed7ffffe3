"""Starts a bundled program on emulated hosts (processes on loopback) and reads the files that they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import reserved
from tests.support.waiting import until
from tests.support.warm import Forked, Warm
from tpujob.contract import ProgramContext

#: So long may a condition take on a busy machine before the test gives up on it.
PATIENCE_S = 400  #: seconds; the longest training takes 170 on an idle core

Event = dict[str, Any]


@dataclass
class Host:
    process: subprocess.Popen[str] | Forked
    out: Path
    log: Path
    attempt: int

    def events(self, kind: str | None = None) -> list[Event]:
        """Return the events of this attempt so far."""
        try:
            lines = (self.out / "events.jsonl").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        mine = [event for event in events if event["attempt"] == self.attempt]
        return [event for event in mine if kind in (None, event["kind"])]

    def numbers(self) -> dict[int, tuple[float, float]]:
        """Return the loss and the norm of the gradients of each step of this attempt, with every bit."""
        return {e["step"]: (e["loss"], e["gradient_norm"]) for e in self.events("step")}

    def losses(self) -> dict[int, float]:
        """Return the loss of each step of this attempt, with every bit."""
        return {event["step"]: event["loss"] for event in self.events("step")}

    def until(self, true: Callable[[Host], Any]) -> None:
        """Wait until something holds. Fail with the log if the process ends before it does."""

        def holds() -> bool:
            if true(self):
                return True
            ended = self.process.poll()
            assert ended is None, f"ended with {ended} too early:\n{self.log.read_text()}"
            return False

        until(holds, self.log.read_text, PATIENCE_S)

    def code(self) -> int:
        """Wait until the process has ended; return its exit code."""
        return self.process.wait(PATIENCE_S)

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class Job:
    """A workdir, and attempts in it to run `module`. `environment` is added to that of every process, `on_host` to
    some. `warm`: what its hosts are forked from; None: each is a new process."""

    module = "workloads.mlp"

    def __init__(
        self, folder: Path, cache: Path, warm: Warm | None = None, **environment: str
    ) -> None:
        self.folder = folder
        self._cache, self._warm = cache, warm
        self.environment = environment
        self.on_host: dict[int, dict[str, str]] = {}
        self._attempt = 0
        self.workdir = str(folder / "work")

    @contextmanager
    def start(self, *flags: str, hosts: int = 1, devices: int = 2) -> Iterator[list[Host]]:
        """Start a further attempt, on so many hosts with so many devices each; kill it at the latest on leaving."""
        self._attempt += 1
        with reserved() as port:
            address = f"127.0.0.1:{port}" if hosts > 1 else ""
            started = [self._start(h, hosts, devices, address, flags) for h in range(hosts)]
            try:
                yield started
            finally:
                for host in started:
                    host.process.kill()
                    host.process.wait()

    def run(self, *flags: str, hosts: int = 1, devices: int = 2) -> list[Host]:
        """Run a further attempt to its end; it must succeed."""
        with self.start(*flags, hosts=hosts, devices=devices) as started:
            codes = [host.code() for host in started]
        logs = "\n".join(host.log.read_text() for host in started)
        assert codes == [0] * hosts, f"ended with {codes}:\n{logs}"
        return started

    def _start(
        self, host: int, hosts: int, devices: int, address: str, flags: tuple[str, ...]
    ) -> Host:
        out = self.folder / f"out-{host}"
        context = ProgramContext(
            attempt=self._attempt,
            host=host,
            hosts=hosts,
            coordinator=address,
            workdir=self.workdir,
            cache=str(self._cache),
            out=str(out),
        )
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
            **context.to_env(),
            **self.environment,
            **self.on_host.get(host, {}),
        }
        log = self.folder / f"log-{self._attempt}-{host}"
        log.touch()
        if self._warm:
            return Host(
                self._warm.start(self.module, flags, environment, log), out, log, self._attempt
            )
        with log.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module, *flags],
                stdout=stream,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
        return Host(process, out, log, self._attempt)
