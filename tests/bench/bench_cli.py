"""Measure the CPU time of commands, of the backend and of the store. Run: python -m tests.bench.bench_cli [ROUNDS]

Each command is measured beside an empty Python program in the same minute, as the machine's speed changes with what
else it does; the best of several rounds is the one that was disturbed least.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.bench.scale.rig import used
from tests.flow.page import lab
from tpujob.adapters.sqlite import SqliteStore
from tpujob.config import stack_processes
from tpujob.config.settings import load
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Job, State

TPUJOB = str(Path(sys.executable).with_name("tpujob"))
JOBS = 1000
#: no tick is due while the bench runs: what is measured is the command, not the reconciler
LATER = time.time() + 1e6


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'what':40} {'best':>10} {'median':>10}   target")
    with tempfile.TemporaryDirectory() as folder:
        _store(Path(folder, "bench.db"))
        settings = load(Path(folder, "state"))
        env = {**os.environ, "TPUJOB_STATE": str(settings.state), "COLUMNS": "80"}
        stack_processes.up(settings)
        try:
            backend = stack_processes.status(settings)[-1].pid
            assert backend
            store = SqliteStore(settings.db)
            _fill(store, 10)
            _idle(backend)
            _fill(store, JOBS - 10)
            _commands(env, rounds, backend)
        finally:
            stack_processes.down(settings)


def _commands(env: dict[str, str], rounds: int, backend: int) -> None:
    commands = {
        "python -c pass": ([sys.executable, "-c", "pass"], ""),
        "tpujob --help": ([TPUJOB, "--help"], "0.15 s"),
        f"tpujob list, {JOBS} jobs": ([TPUJOB, "list"], "0.25 s"),
        f"tpujob list --json, {JOBS} jobs": ([TPUJOB, "list", "--json"], ""),
    }
    costs: dict[str, list[float]] = {label: [] for label in commands}
    served: list[float] = []
    for _ in range(rounds):
        for label, (command, _target) in commands.items():
            before = used(backend).cpu_s
            costs[label].append(_cpu_of_command(command, env))
            if command[1:] == ["list"]:
                served.append(used(backend).cpu_s - before)
    for label, (_command, target) in commands.items():
        _say(label, costs[label], "s", target)
    _say("  of which the backend spends, besides", served, "s")


def _store(path: Path) -> None:
    store = SqliteStore(path)
    wall = time.perf_counter()
    _say("store: create", _each(lambda: store.create(_job(), _event()), JOBS), "ms")
    print(f"{'  with the disk':40} {(time.perf_counter() - wall) / JOBS * 1e3:7.2f} ms")
    fresh = [SqliteStore(path) for _ in range(3)]
    _say(f"store: list {JOBS}, first", [_cpu(store.list) * 1e3 for store in fresh], "ms")
    _say(f"store: list {JOBS}, again", _each(fresh[0].list, 5), "ms", "40 ms")
    job = store.list()[0]

    def commit() -> None:
        nonlocal job
        job = store.commit(
            replace(job), _event(), expected_version=job.version, op_id=f"{job.version}", lease=None
        )

    _say("store: commit", _each(commit, 200), "ms")
    _say("store: get", _each(lambda: store.get(job.id), 200), "ms")
    _say("store: due, with none due", _each(lambda: store.due(time.time()), 200), "ms")
    newest = store.newest()
    _say("store: changes, with none", _each(lambda: store.changes(newest), 200), "ms")


def _idle(backend: int, seconds: float = 20.0) -> None:
    time.sleep(seconds / 2)  # what a start brings with it is over
    before = used(backend)
    time.sleep(seconds)
    after = used(backend)
    share = (after.cpu_s - before.cpu_s) / seconds * 100
    print(f"{'backend, 10 jobs waiting: CPU':40} {share:7.2f} %               1 %")
    print(f"{'backend, 10 jobs waiting: memory':40} {after.rss_mib:7.0f} MB              120 MB")


def _fill(store: SqliteStore, count: int) -> None:
    for _ in range(count):
        store.create(_job(), _event())


def _event() -> Event:
    return Event(EventKind.CREATED, time.time(), State.RUNNING, "made up for a measurement")


def _job() -> Job:
    """A job in mid-training on two hosts."""
    return lab.job_in(State.RUNNING, now=time.time(), wake=LATER)


# Measuring -----------------------------------------------------------------------------------------------------------


def _cpu_of_command(command: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _each(work: Callable[[], object], times: int) -> list[float]:
    return [_cpu(work) * 1e3 for _ in range(times)]


def _say(label: str, figures: list[float], unit: str, target: str = "") -> None:
    ordered = sorted(figures)
    best, median = ordered[0], ordered[len(ordered) // 2]
    print(f"{label:40} {best:7.3f} {unit:2} {median:7.3f} {unit:2}   {target}".rstrip())


if __name__ == "__main__":
    main()
