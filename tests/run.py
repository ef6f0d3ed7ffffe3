"""`python -m tests.run LAYER`: its tests, and as the very last line how many passed and failed.

`check`: lint of what changed, and pure tests, in half a minute. `test`: every check, and every test that
takes no longer than seconds. `nightly`: the rest; once `--minutes` are over, each test that is left is skipped.
A stage that does not end is ended, and has failed. Up to AGAIN tests that fail run once more, alone; those that pass
then are counted as passed, and named.

Many tests wait for processes, so pytest has more processes than there are cores, and the checks run beside them with a
lower priority. Each line that is printed begins with its stage.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

PYTEST = (sys.executable, "-m", "pytest", "-q")
SIMULATION = (sys.executable, "-u", "-m", "tests.support.simulation", "--points", "0")
YIELDING = ("nice", "-n", "5")
#: Leaves behind every test file as pytest rewrites it, which takes most of the time of reading it. Processes that begin
#: at the same time would each do that.
COLLECT = (*PYTEST[:3], "-o", "addopts=", "-p", "no:terminal", "--collect-only")
#: Tests of a file share a stack, a server, and what was compiled. The files begin in this order.
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
#: Folders whose files take longest. They begin first, so that nothing of them is alone at the end.
FIRST = ("stack", "deploy", "hosts", "stores", "data")
#: Folders of nightly tests, by what is lost where they do not run.
NIGHTLY = (
    "stack", "kills", "silence", "gcloud", "emulator", "fuzz", "estimator", "training", "trainers", "page", "bare",
)  # fmt: skip
#: Rooms whose tests neither read files by the dozen nor compile anything.
PURE = ("domain", "engine", "config", "doctor", "submit", "project")
MOST = 3600  #: seconds of a stage, after which its processes are killed
GRACE = 600  #: seconds that a test may take that began before `--minutes` were over
UNTIL = "TPUJOB_TESTS_UNTIL"  #: the variable with the time after which no test begins
WAIT = 10.0  #: seconds for the last lines of a stage that has ended
AGAIN = 3  #: failed tests that run once more; more than these are no accident of a busy machine
SHOWN = 12  #: lines of what pytest says of a failure, at the end of the run


@dataclass(frozen=True)
class Stage:
    """A command that writes a JUnit report where `--junitxml` tells it to, or one that counts as a single check."""

    name: str
    command: Sequence[str]
    reports: bool = True


def _files(*layers: str) -> list[Path]:
    """The test files of these layers, those first that take longest. The page's share a browser, and so a process."""

    def rank(file: Path) -> tuple[int, Path]:
        return (FIRST.index(file.parts[2]) if file.parts[2] in FIRST else len(FIRST)), file

    files = (file for layer in layers for file in Path("tests", layer).rglob("test_*.py"))
    return sorted((file for file in files if file.parts[2] != "page"), key=rank)


def pytest(name: str, files: Sequence[Path | str], *, marks: str, processes: int = 0) -> Stage:
    spread = ("-n", str(processes), *BY_FILE) if processes else ()
    return Stage(name, (*YIELDING, *PYTEST, "-m", marks, *spread, *map(str, files)))


def lint(*variables: str) -> Stage:
    words = ("make", "--no-print-directory", "lint", *variables)
    return Stage("lint", (*YIELDING, *words), reports=False)


def check() -> list[Sequence[Stage]]:
    rooms = [f"tests/unit/{room}" for room in PURE]
    return [[pytest("unit", rooms, marks="not slow", processes=2)], [lint("CHANGED=1")]]


def test() -> list[Sequence[Stage]]:
    return [
        [
            Stage("collect", (*YIELDING, *COLLECT, "tests/unit", "tests/contract", "tests/flow"), reports=False),
            pytest("tests", _files("unit", "contract", "flow"), marks="not slow", processes=3),
        ],
        [lint(), pytest("page", ["tests/flow/page"], marks="not slow")],
        [Stage("seeds", (*YIELDING, *SIMULATION, "--seeds", "1", "--full", "0"))],
    ]  # fmt: skip


def nightly() -> list[Sequence[Stage]]:
    """Return the stages: nightly and slow tests, then seeds and pages; tests of minutes (`long`) have their own."""
    folders = [Path("tests", "nightly", name) for name in NIGHTLY]
    files = [file for folder in folders for file in sorted(folder.glob("test_*.py"))]
    slow = [f for f in _files("unit", "contract", "flow") if "mark.slow" in f.read_text("utf-8")]
    apart = [Path("tests/flow/page"), Path("tests/nightly/page")]
    rest = [file for file in files if file.parent not in apart]
    return [
        [
            pytest("nightly", [*rest, *slow], marks="(nightly or slow) and not long", processes=3),
            pytest("long", rest, marks="long", processes=2),
        ],
        [
            # none is new: what fails here is what has changed. `make sim` looks for more
            Stage("seeds", (*YIELDING, *SIMULATION, "--seeds", "8", "--full", "3", "--fresh", "0")),
            pytest("page", apart, marks="(nightly or slow) and not long"),
            pytest("long page", apart, marks="long"),
        ],
    ]


#: of each layer: lists that run beside each other, the stages of a list one after the other
LAYERS = {"check": check, "test": test, "nightly": nightly}


@dataclass
class Count:
    """The counts of passed, failed and skipped tests, seeds and kill points."""

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  #: by reason
    #: of what failed: its name, and the end of what pytest says of it
    failures: list[tuple[str, str]] = field(default_factory=list)
    unsteady: list[tuple[str, str]] = field(default_factory=list)  #: failed, then passed alone

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
    """Return the counts in a stage's report. A stage that failed without a failed test or a report is one failure."""
    result = Count(passed=int(not stage.reports and not code))
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        suites = []
    for suite in suites:
        tests, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        result.failed += failures + errors
        result.passed += tests - failures - errors - skipped
        for case in suite.iter("testcase"):
            result.skipped.update(skip.get("message", "") for skip in case.iter("skipped"))
            name = f"{case.get('classname', '')}::{case.get('name', '')}".lstrip(":")
            elements = [*case.iter("failure"), *case.iter("error")]
            result.failures += [(name, _end(element.text or "")) for element in elements[:1]]
    if (stage.reports and not suites) or (code and not result.failed):
        result.failed += 1
        result.failures.append((f"stage {stage.name} ended with exit code {code}", ""))
    return result


def _end(text: str) -> str:
    """Return the last lines, indented: the error and where it was raised. Some logs show only a run's end."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "".join(f"\n    {line}" for line in lines[-SHOWN:])


class Run:
    """Lists of stages that run beside each other; what they print is passed on line by line."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.most = seconds
        self.total = Count()
        self.stopped = False
        self._running: set[int] = set()
        self._lock = threading.Lock()

    def together(self, *lists: Sequence[Stage]) -> None:
        threads = [threading.Thread(target=self._each, args=(stages,)) for stages in lists]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.stopped = True
            for process in self._running:
                _end_group(process, signal.SIGINT)
            for thread in threads:
                thread.join()
            raise

    def again(self) -> None:
        """Run what failed once more, if that is little; also when the time of the run is over."""
        if len(self.total.failures) > AGAIN:
            return
        os.environ.pop(UNTIL, None)
        for failure in list(self.total.failures):
            module, _, name = failure[0].partition("::")
            file = Path(*module.split(".")).with_suffix(".py")
            if name and file.is_file():
                stage = pytest("again", [f"{file}::{name}"], marks="")
                result = self._stage(stage)
                if result.passed and not result.failed:
                    self.total.passed += 1
                    self.total.failed -= 1
                    self.total.failures.remove(failure)
                    self.total.unsteady.append(failure)

    def _each(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if not self.stopped:
                result = self._stage(stage)
                with self._lock:
                    self.total.add(result)

    def _stage(self, stage: Stage) -> Count:
        report, began = self.folder / f"{stage.name}.xml", time.monotonic()
        options = [f"--junitxml={report}"] * stage.reports
        process = subprocess.Popen(
            [*stage.command, *options],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout
        self._running.add(process.pid)
        # Not read here: a process that the stage left behind may hold its end of the pipe.
        reading = threading.Thread(target=self._pass_on, args=(stage, process.stdout), daemon=True)
        limit = threading.Timer(self.most, _end_group, (process.pid, signal.SIGKILL))
        limit.daemon = True
        reading.start()
        limit.start()
        _, status, used = os.wait4(process.pid, 0)
        limit.cancel()
        reading.join(WAIT)
        self._running.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        result = count(report, stage, process.returncode)
        took, cpu = time.monotonic() - began, used.ru_utime + used.ru_stime
        self._say(stage, f"{result} in {took:.0f} s, {cpu:.0f} s of CPU time")
        return result

    def _pass_on(self, stage: Stage, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                if line.strip():
                    self._say(stage, line.rstrip())

    def _say(self, stage: Stage, line: str) -> None:
        with self._lock:
            print(f"{stage.name:9} | {line}", flush=True)


def _end_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def _environment() -> dict[str, str]:
    """This process's, but bytecode is kept: pytest compiles all tests again in each of its processes otherwise."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(*lists: Sequence[Stage], most: float = MOST) -> int:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), most)
        run.together(*lists)
        run.again()
    for reason, times in run.total.skipped.items():
        print(f"SKIPPED, {times} times: {reason}")
    for name, end in run.total.unsteady:
        print(f"FAILED, THEN PASSED ALONE: {name}{end}")
    for name, end in run.total.failures:
        print(f"FAILED: {name}{end}")
    print(run.total, flush=True)
    return 1 if run.total.failed else 0


def command() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("layer", choices=LAYERS)
    parser.add_argument("--minutes", type=float, help="after which no further test begins")
    options = parser.parse_args()
    if options.minutes is None:
        return main(*LAYERS[options.layer]())
    os.environ[UNTIL] = str(time.time() + 60 * options.minutes)
    return main(*LAYERS[options.layer](), most=max(0, 60 * options.minutes) + GRACE)


if __name__ == "__main__":
    sys.exit(command())
