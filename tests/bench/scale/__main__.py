"""One real backend with many jobs: `python -m tests.bench.scale [JOBS] [--steady]`.

The backend is a process of its own on SQLite, with the real adapters: gRPC, HTTP and SSH on loopback to the emulator,
which is another process with simulated hosts. CPU time is the process's own, so it does not depend on what else the
machine does; times are wall times, and do. SUBMITTED jobs are submitted and started, the others are copies of them.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from tests.bench.scale.rig import ENOUGH, PATIENCE, ZONES, Rig, running, used
from tpujob.engine.slice_cache import LAG, MAX_LIST_AGE

REPORT_EVERY = 60.0  #: seconds, as in the cloud
WINDOW = 120.0  #: seconds of nothing but ticks
RAMP = 0.15  #: seconds a job until those that run by then must do; on a machine with nothing else it takes 0.1
FEW = 20  #: jobs that say what a backend takes without many
SUBMITTED = 300  #: jobs that say what a start takes
GONE, NOTICE = 100, 30.0  #: slices that are preempted at once; seconds of notice, as on spot
SILENT = 1.0  #: percent of the slices that die, and that the cloud calls READY
CALLS = 600.0  #: of Cloud TPU a minute, which a backend in the cloud allows itself
#: (limit, unit) of what is asked of 10,000 jobs
CORE, MEMORY, LIST, BACK, SWEEP = 1.0, 512.0, 300.0, 10.0, 5.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    parser.add_argument("jobs", type=int, nargs="?", default=10_000)
    parser.add_argument("--submitted", type=int, default=SUBMITTED)
    parser.add_argument("--steady", action="store_true", help="no drills: no slice is lost")
    args = parser.parse_args()
    jobs: int = args.jobs
    hosts = jobs // len(ZONES) + 2 * GONE
    with running(REPORT_EVERY, hosts) as rig:
        few, run = _ramp(rig, min(jobs, args.submitted))
        if run < jobs:
            rig.seed(range(min(jobs, args.submitted), jobs), REPORT_EVERY)
            rig.settled(jobs)
        steady = _steady(rig, jobs)
        _lists(rig)
        _sweep(rig)
        if not args.steady:
            for notice in (NOTICE, 0.0):
                _preempted(rig, min(GONE, jobs // 2), notice, jobs)
            _silent(rig, SILENT, jobs)
        _beyond(jobs, few, *steady)


def _ramp(rig: Rig, jobs: int) -> tuple[float, int]:
    """Return the memory with a few jobs, and how many run."""
    rig.submit(range(min(FEW, jobs)))
    time.sleep(REPORT_EVERY / 4)
    began, before = time.monotonic(), used(rig.backend)
    _say(f"memory (RSS) with {FEW} jobs", before.rss_mib, "MiB")
    if jobs <= FEW:
        return before.rss_mib, jobs
    run = rig.submit(range(FEW, jobs), max(PATIENCE, RAMP * jobs))
    if run < ENOUGH * jobs:
        print(
            f"in {time.monotonic() - began:.0f} s {run} of {jobs} came to run: going on with them"
        )
    _say("from submitted to running", (run - FEW) / (time.monotonic() - began), "jobs/s")
    cpu = (used(rig.backend).cpu_s - before.cpu_s) / max(1, run - FEW)
    _say("the same, CPU of the backend", cpu * 1e3, "ms a job")
    return before.rss_mib, run


def _steady(rig: Rig, jobs: int) -> tuple[float, float]:
    """Return cores, and MiB of memory. Slices that were requested just before are looked at by name until a list that
    is begun a minute later shows them: that is no steady state."""
    time.sleep(LAG + MAX_LIST_AGE)
    before, cloud, calls = used(rig.backend), used(rig.cloud), rig.calls()
    written, began = rig.class_a(), time.monotonic()
    time.sleep(WINDOW if jobs > 500 else WINDOW / 2)
    passed = time.monotonic() - began
    after, made = used(rig.backend), rig.calls() - calls
    cores = (after.cpu_s - before.cpu_s) / passed
    _say(f"{jobs} running jobs: CPU", cores, "core", CORE)
    _say("memory (RSS)", after.rss_mib, "MiB", MEMORY)
    _say("memory, at most until now", after.most_mib, "MiB")
    _say("CPU of the emulator", (used(rig.cloud).cpu_s - cloud.cpu_s) / passed, "core")
    for service, unit, per in (("tpu", "calls/min", 60), ("storage", "operations/h", 3600)):
        counts = {method: n for (s, method), n in made.items() if s == service}
        text = ", ".join(f"{method} {n * per / passed:,.0f}" for method, n in counts.items())
        _say(f"{service}: {text or 'none'}", sum(counts.values()) * per / passed, unit)
    rate = (rig.class_a() - written) * 3600 / passed
    _say("class A, of hosts and backend", rate, "operations/h")
    return cores, after.most_mib


def _lists(rig: Rig) -> None:
    before = used(rig.backend).cpu_s
    times = _timed(lambda: rig.api.list({"limit": 50}), 100)
    _say("list, first page: CPU of the backend", (used(rig.backend).cpu_s - before) * 10, "ms")
    _say("list, first page: p50", _at(times, 0.5) * 1e3, "ms")
    _say("list, first page: p95", _at(times, 0.95) * 1e3, "ms", LIST)


def _sweep(rig: Rig) -> None:
    before = used(rig.backend).cpu_s
    _say("a sweep", max(_timed(lambda: rig.api.sweep(dry_run=True), 3)), "s", SWEEP)
    _say("a sweep: CPU of the backend", (used(rig.backend).cpu_s - before) / 3, "s")


def _preempted(rig: Rig, count: int, notice: float, jobs: int) -> None:
    """Print the time from the moment when the cloud says PREEMPTED to the event of the next request; after a notice the
    request may come before that moment: then the time is negative."""
    how = f"with {notice:g} s of notice" if notice else "without notice"
    label = f"{count} preempted {how}, to the next request"
    _lost(
        rig, jobs, lambda: rig.disturb(count, "preempt", notice=f"{notice:g}s"), notice, label, BACK
    )


def _silent(rig: Rig, percent: float, jobs: int) -> None:
    """Print the time from the death of slices that the cloud still calls READY to the event of the next request."""
    label = f"{percent:g} % fall silent, to the next request"
    count = max(1, round(jobs * percent / 100))
    _lost(rig, jobs, lambda: rig.disturb(count, "silence"), 0.0, label, None)


def _lost(
    rig: Rig,
    jobs: int,
    drill: Callable[[], list[str]],
    later: float,
    label: str,
    limit: float | None,
) -> None:
    """`later`: seconds after the drill from which the times count."""
    rig.settled(jobs)
    calls, before, at = rig.calls(), used(rig.backend).cpu_s, time.time() + later
    gone = {job: int(k) for _, job, k in (name.split("-")[:3] for name in drill())}
    waits: dict[str, float] = {}

    def back() -> bool:
        for job in gone.keys() - waits.keys():
            events = rig.patiently(lambda job=job: rig.api.events(job))
            requests = [event["at"] for event in events if event["kind"] == "slice_requested"]
            if len(requests) > gone[job]:
                waits[job] = datetime.fromisoformat(requests[gone[job]]).timestamp() - at
        return len(waits) == len(gone)

    time.sleep(BACK)  # looking costs the backend something
    rig.until(back, "each has requested another slice")
    seconds, cpu = sorted(waits.values()), used(rig.backend).cpu_s - before
    _say(f"{label}: p50", _at(seconds, 0.5), "s")
    _say("the same: p99", _at(seconds, 0.99), "s", limit)
    _say("the same: CPU of the backend, with looking", cpu, "s")
    made = sum(n for (service, _), n in (rig.calls() - calls).items() if service == "tpu")
    _say(f"the same: calls of Cloud TPU; {CALLS:g} a minute are allowed", made, "calls")


def _beyond(jobs: int, few: float, cores: float, many_use: float) -> None:
    """Print which target is missed first, by a straight line through this run, which is no measurement."""
    at = {
        "CPU": CORE / cores * jobs,
        "memory": (MEMORY - few) / max(many_use - few, 1e-9) * (jobs - FEW),
    }
    for resource, limit in sorted(at.items(), key=lambda item: item[1]):
        print(f"by a straight line, {resource} is enough for {limit:,.0f} jobs")


def _timed(do: Callable[[], object], rounds: int) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return sorted(times)


def _at(times: Sequence[float], share: float) -> float:
    return (
        statistics.median(times)
        if share == 0.5
        else times[min(len(times) - 1, int(len(times) * share))]
    )


def _say(label: str, value: float, unit: str, limit: float | None = None) -> None:
    verdict = (
        ""
        if limit is None
        else f"  (at most {limit:g}: {'held' if value <= limit else 'NOT HELD'})"
    )
    print(f"{label:60} {value:12,.2f} {unit}{verdict}", flush=True)


if __name__ == "__main__":
    main()
