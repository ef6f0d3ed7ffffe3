"""`python -m tests.run`: every check and every test, and as its very last line how many passed and failed.

Most slow tests wait for processes, while everything else computes. So the rest runs beside the slow tests, with a
lower priority; the seeds of the simulation have the lowest, and use whatever is left. Each line that is printed begins
with its stage.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

PYTEST = (sys.executable, "-m", "pytest", "-q")
SIMULATION = (sys.executable, "-u", "-m", "tests.simulation")
YIELDING = ("nice", "-n", "5")
WHEN_IDLE = ("nice", "-n", "15")
#: the others have targets of their own in the Makefile
SLOW = "slow and not bare and not gcloud and not train and not silence"
QUICK = "not slow and not page and not silence"
#: Leaves behind every test file as pytest rewrites it, which takes most of the time of reading it. Processes that begin
#: at the same time would each do that.
COLLECT = (*PYTEST[:3], "-o", "addopts=", "-p", "no:terminal", "--collect-only")
#: Tests of a file share a stack, a server, and what was compiled. The files begin in this order.
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
#: What takes longest. It begins first, so that nothing of it is alone at the end.
FIRST = ("simulation", "test_deploy.py", "flows", "workloads", "contracts", "data", "emulator")
SHOWN = 12  #: lines of what pytest says of a failure, at the end of the run
#: Its tests share a browser, and so a process.
PAGE = Path("tests/page")


@dataclass(frozen=True)
class Stage:
    """A command that writes a JUnit report where `--junitxml` tells it to, or one that counts as a single check."""

    name: str
    command: Sequence[str]
    reports: bool = True


def files() -> list[Path]:
    """With tests, in the order in which they begin."""

    def rank(file: Path) -> tuple[int, Path]:
        return (FIRST.index(file.parts[1]) if file.parts[1] in FIRST else len(FIRST)), file

    return sorted(Path("tests").rglob("test_*.py"), key=rank)


def slow_files() -> list[str]:
    """The files with a slow test: each process of pytest imports all that it is given."""
    return [str(file) for file in files() if "mark.slow" in file.read_text("utf-8")]


def quick_files() -> list[str]:
    return [str(file) for file in files() if PAGE not in file.parents]


#: the lists run beside each other, the stages of a list one after the other
LISTS = (
    (Stage("slow", (*PYTEST, "-m", SLOW, "-n", "4", *BY_FILE, *slow_files())),),
    (
        Stage("collect", (*YIELDING, *COLLECT), reports=False),
        Stage("quick", (*YIELDING, *PYTEST, "-m", QUICK, "-n", "3", *BY_FILE, *quick_files())),
    ),
    (
        Stage("page", (*YIELDING, *PYTEST, "-m", QUICK, str(PAGE))),
        Stage("lint", (*YIELDING, "make", "--no-print-directory", "lint"), reports=False),
    ),
    (Stage("seeds", (*WHEN_IDLE, *SIMULATION, "--seeds", "6", "--full", "3", "--points", "0")),),
)


@dataclass
class Count:
    """What came of tests, seeds and kill points."""

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  #: by reason
    #: of what failed: its name, and the end of what pytest says of it
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures

    def __str__(self) -> str:
        skipped = self.skipped.total()
        return f"{self.passed} passed, {self.failed} failed" + (
            f", {skipped} skipped" * bool(skipped)
        )


def count(report: Path, stage: Stage, code: int) -> Count:
    """What a stage's report says. A stage that failed without a failed test, or left no report, is one failure."""
    found = Count(passed=int(not stage.reports and not code))
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        suites = []
    for suite in suites:
        tests, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        found.failed += failures + errors
        found.passed += tests - failures - errors - skipped
        for case in suite.iter("testcase"):
            found.skipped.update(skip.get("message", "") for skip in case.iter("skipped"))
            name = f"{case.get('classname', '')}::{case.get('name', '')}".lstrip(":")
            said = [*case.iter("failure"), *case.iter("error")]
            found.failures += [(name, _end(one.text or "")) for one in said[:1]]
    if (stage.reports and not suites) or (code and not found.failed):
        found.failed += 1
        found.failures.append((f"stage {stage.name} ended with exit code {code}", ""))
    return found


def _end(text: str) -> str:
    """Its last lines, indented: the error and where it was raised. A log shows them where it keeps only its own end."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "".join(f"\n    {line}" for line in lines[-SHOWN:])


class Run:
    """Lists of stages that run beside each other; what they print is passed on line by line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.total = Count()
        self.stopped = False
        self._lock = threading.Lock()

    def together(self, *lists: Sequence[Stage]) -> None:
        threads = [threading.Thread(target=self._each, args=(stages,)) for stages in lists]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # the stages are told by the terminal, too
            self.stopped = True
            for thread in threads:
                thread.join()
            raise

    def _each(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if not self.stopped:
                self._stage(stage)

    def _stage(self, stage: Stage) -> None:
        report, began = self.folder / f"{stage.name}.xml", time.monotonic()
        wanted = [f"--junitxml={report}"] * stage.reports
        process = subprocess.Popen(
            [*stage.command, *wanted],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                if line.strip():
                    self._say(stage, line.rstrip())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        found = count(report, stage, process.returncode)
        with self._lock:
            self.total.add(found)
        took, cpu = time.monotonic() - began, used.ru_utime + used.ru_stime
        self._say(stage, f"{found} in {took:.0f} s, {cpu:.0f} s of CPU time")

    def _say(self, stage: Stage, line: str) -> None:
        with self._lock:
            print(f"{stage.name:7} | {line}", flush=True)


def _environment() -> dict[str, str]:
    """This process's, but bytecode is kept: pytest compiles all tests anew in each of its processes otherwise."""
    return {name: it for name, it in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(*lists: Sequence[Stage]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        run.together(*lists)
    for reason, times in run.total.skipped.items():
        print(f"SKIPPED, {times} times: {reason}")
    for name, end in run.total.failures:
        print(f"FAILED: {name}{end}")
    print(run.total, flush=True)
    return 1 if run.total.failed else 0


if __name__ == "__main__":
    sys.exit(main(*LISTS))
