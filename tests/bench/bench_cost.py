"""What a report over many finished jobs costs in CPU, and a forecast. Run: python -m tests.bench.bench_cost [JOBS]

Each job had two slices and three attempts. The first report reads every record; later ones find them in memory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.support.records import a_job
from tpujob.adapters.sqlite import SqliteStore
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Attempt, Cause, Grant, Job, Outcome, Progress, Slice, State
from tpujob.domain.money.conditions import conditions
from tpujob.domain.money.forecast import PlannedWork, forecast
from tpujob.domain.money.samples import SamplePlace, history
from tpujob.domain.observations import NO_FUNDS
from tpujob.domain.prices import LIST
from tpujob.service.job_index import Changes, JobIndex
from tpujob.service.money.cost import Costs
from tpujob.service.runtime_info import RuntimeReader

JOBS = 10_000
TARGET = 2.0  #: seconds


class _Clock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder, "bench.db"))
        for number in range(count):
            created = Event(EventKind.CREATED, 0.0, State.SUCCEEDED, "made up for a measurement")
            store.create(_finished(number), created)
        _forecasts([_finished(number) for number in range(count)])
        for by in ("job", "user", "day", "type"):
            store, clock = SqliteStore(Path(folder, "bench.db")), _Clock()
            index = JobIndex(
                store, Changes(store), clock, RuntimeReader({}, dict, lambda _: NO_FUNDS, LIST)
            )
            index.states()  # as a backend has done for its first list
            fresh = Costs(store, clock, index)
            first, again = _cpu(fresh, by), _cpu(fresh, by)
            print(
                f"cost report --by {by:5} {count:,} jobs: {first:5.2f} s, again {again:5.2f} s   {TARGET:g} s"
            )


def _forecasts(jobs: list[Job]) -> None:
    """For jobs of an hour to four months, with what those jobs met."""
    before = time.process_time()
    met = history(jobs, time.time())
    print(f"history of {len(jobs):,} jobs: {time.process_time() - before:5.2f} s")
    expected = conditions(met, SamplePlace("v4-16", "us-central2-b", "spot"), "true")
    for hours in (1, 10, 100, 3000):
        before = time.process_time()
        found = forecast(PlannedWork(hours * 3600.0, preemptions=None), expected)
        spent = 1000 * (time.process_time() - before)
        print(f"forecast for {hours:5} h of work, {found.runs} runs: {spent:4.0f} ms   50 ms")


def _cpu(costs: Costs, by: str) -> float:
    before = time.process_time()
    found = costs.cost(by=by)
    assert found["total"]["list_micros"]
    return time.process_time() - before


def _finished(number: int) -> Job:
    start = 1.7e9 + number * 600.0
    slices = tuple(
        Slice(
            f"tj-{number}-{k}", k, "v4-16", "us-central2-b", "spot", "base", 7.372,
            start + k * 9000, ready_at=start + k * 9000 + 120, delete_asked_at=start + k * 9000 + 8000,
            gone_at=start + k * 9000 + 8060,
        )
        for k in (1, 2)
    )  # fmt: skip
    attempts = tuple(
        Attempt(
            n, f"tj-{number}-{k}", at, at + 60, at + length, Outcome.INTERRUPTED, Cause.PREEMPTED,
            progress=Progress(step=n * 100, checkpoint=n * 90, resumed_from=(n - 1) * 90),
            first_step_at=at + 90,
        )
        for n, k, at, length in (
            (1, 1, start + 9120, 3000.0),
            (2, 1, start + 12_200, 4000.0),
            (3, 2, start + 18_120, 7000.0),
        )
    )  # fmt: skip
    return replace(
        a_job(), user=f"user{number % 20}", state=State.SUCCEEDED, created_at=start, slices=slices,
        attempts=attempts, finished_at=start + 27_000, grants=(Grant("v4", "us-central2-b", "spot", 64),),
    )  # fmt: skip


if __name__ == "__main__":
    main()
