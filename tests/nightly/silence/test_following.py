"""Somebody follows a job that runs: what its hosts print is there at once, and each line once, whatever happens."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.farm_rig import until
from tests.support.local_stack import LocalStack, stack

pytestmark = pytest.mark.timeout(600)

__all__ = ["stack"]

#: prints numbers until it is stopped
COUNT = "i=0; until [ -e {flag} ]; do i=$((i+1)); echo count $i; sleep 0.1; done; echo end $i"


class Following:
    """`tpujob logs -f`, and what it has printed."""

    def __init__(self, stack: LocalStack, job_id: str) -> None:
        self.process = stack.popen("logs", "-f", job_id)
        self.lines: list[tuple[float, str]] = []
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._hear)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe
            pipe.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip("\n")))

    def _hear(self) -> None:
        assert self.process.stderr
        self.said = self.process.stderr.read()

    def of(self, host: int) -> list[str]:
        return [text.partition("| ")[2] for _, text in self.lines if text.startswith(f"{host}| ")]

    def counts(self, host: int) -> list[int]:
        """Return the numbers that the program of a host has counted."""
        return [int(x.split()[1]) for x in self.of(host) if re.fullmatch(r"count \d+", x)]

    def ended(self) -> None:
        """Waits for its end, as the job has ended."""
        assert self.process.wait(120) == 0
        for thread in self._threads:
            thread.join()

    def check(self, host: int) -> None:
        counts = self.counts(host)
        assert counts == list(range(1, len(counts) + 1)), "each line once, in order, without a gap"


def test_lines_of_all_hosts_survive_a_restart(stack: LocalStack, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    job_id = stack.create("counting", COUNT.format(flag=flag))
    stack.until(job_id, "running")
    with Following(stack, job_id) as following:
        until(lambda: all(len(following.counts(h)) > 30 for h in (0, 1)), "lines of both hosts", 60)
        os.kill(stack.ready("backend")["pid"], signal.SIGKILL)
        seen = [len(following.counts(h)) for h in (0, 1)]
        until(
            lambda: all(len(following.counts(h)) > seen[h] + 30 for h in (0, 1)), "more of them", 90
        )
        flag.touch()
        following.ended()
        for host in (0, 1):
            following.check(host)
            assert following.of(host)[-1] == f"end {len(following.counts(host))}"
        assert stack.job(job_id)["state"] == "succeeded"
        whole = stack.run("logs", job_id).splitlines()
        assert sorted(whole) == sorted(text for _, text in following.lines)


def test_a_dead_agent_loses_no_line_without_a_note(stack: LocalStack, tmp_path: Path) -> None:
    job_id = stack.create("agent-dies", COUNT.format(flag=tmp_path / "never"))
    stack.until(job_id, "running")
    with Following(stack, job_id) as following:
        until(lambda: all(len(following.counts(h)) > 30 for h in (0, 1)), "lines of both hosts", 60)
        os.kill(daemon(stack, job_id, host=0), signal.SIGKILL)
        seen = len(following.counts(1))
        until(lambda: len(following.counts(1)) > seen + 20, "that the other host is heard", 60)
        stack.run("delete", job_id, "--yes")
        following.ended()
        for host in (0, 1):
            following.check(host)
        lost = [text for text in following.of(0) if "ended before it had stored" in text]
        stored = stack.run("logs", job_id, "--host", "0").count("count ")
        assert lost or stored >= len(following.counts(0)), "lost lines are noted"


def daemon(stack: LocalStack, job_id: str, host: int) -> int:
    """The agent of that host's first attempt."""
    for plan in stack.state.rglob(f".tpujob/plan-{job_id}-1.json"):
        if json.loads(plan.read_text())["host"] == host:
            state = plan.parent / "attempts" / f"{job_id}-1" / "state.json"
            return int(json.loads(state.read_text())["pid"])
    raise AssertionError(f"host {host} has no plan")
