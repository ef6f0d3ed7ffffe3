"""What a list of 10,000 jobs costs: the first read of the store, the memory of the index, and pages of 50, in the
service and over a unix socket. Run: python -m tests.bench.bench_list [JOBS]

A few hundred jobs go on, the others have ended after one to four attempts, as in a lab after a year.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from tests.flow.page import lab
from tests.support.job_index import Desk
from tests.support.scripted import on_socket, scripted_app
from tpujob.adapters.http.client import RemoteJobs
from tpujob.adapters.sqlite import SqliteStore
from tpujob.api import JobOrder, JobPage, ListAsked
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Job


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder), lab.many(count, time.time()))
        desk = Desk(Path(folder))
        cpu, wall = time.process_time(), time.perf_counter()
        desk.page({"limit": 50})
        _say("first list: wall", time.perf_counter() - wall, "s")
        _say("first list: CPU", time.process_time() - cpu, "s")
        _memory(Path(folder))
        for name, asked in _LISTS.items():
            _times(f"{name}: service", lambda asked=asked: desk.page({**asked, "limit": 50}))
        for order in get_args(JobOrder):
            _times(f"by {order}: service", lambda o=order: desk.page({"order": o, "limit": 50}), 20)
        page = desk.page({"limit": 50})
        print(f"{'a page of 50 rows':44} {len(json.dumps(page)):10,} bytes")
        _times("every row: service", lambda: desk.page(), 3)
        with on_socket(scripted_app(_Api(desk))) as url:
            remote = RemoteJobs(url)
            for name, asked in _LISTS.items():
                _times(f"{name}: socket", lambda asked=asked: remote.list({**asked, "limit": 50}))
            _times("every row: socket", lambda: remote.list(), 3)


_LISTS: dict[str, ListAsked] = {
    "newest": {},
    "mine and active": {"mine": True, "active": True},
    "by spent": {"order": "spent"},
    "search": {"text": "llama", "order": "loss"},
}


class _Api:
    """As much of the service as a list takes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list(self, asked: ListAsked | None = None) -> JobPage:
        return self._desk.page(asked)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _fill(folder: Path, jobs: Iterable[Job]) -> None:
    store = SqliteStore(folder / "jobs.db")
    for job in jobs:
        store.create(job, Event(EventKind.CREATED, job.created_at, job.state, "created"))
    store.close()


def _memory(folder: Path) -> None:
    tracemalloc.start()
    desk = Desk(folder)
    desk.index.states()
    gc.collect()
    held = tracemalloc.get_traced_memory()
    desk.store._decoded.clear()
    gc.collect()
    now, _ = tracemalloc.get_traced_memory()
    _, peak = held
    print(f"{'index and records of live jobs, held':44} {now / 2**20:10.1f} MB")
    print(f"{'the same, at its highest':44} {peak / 2**20:10.1f} MB")
    tracemalloc.stop()


def _times(what: str, do: Callable[[], object], rounds: int = 100) -> None:
    """Wall time, and the CPU time of this process, which does not depend on what else the machine does."""
    do()
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        do()
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    walls.sort()
    cpus.sort()
    late = int(rounds * 0.95)
    print(
        f"{what:34} {statistics.median(walls):8.2f} ms p50 {walls[late]:8.2f} ms p95"
        f" {statistics.median(cpus):8.2f} ms CPU p50 {cpus[late]:8.2f} ms CPU p95"
    )


def _say(what: str, value: float, unit: str) -> None:
    print(f"{what:44} {value:10.2f} {unit}")


if __name__ == "__main__":
    main()
