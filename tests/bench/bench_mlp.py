"""How fast the quickstart's training is: two hosts with four CPU devices each, on this machine.

    python -m tests.bench.bench_mlp [--steps=500] [--batch=128] [any flag of the workload]

Prints the seconds from the start to each phase, the median step, CPU time for a step and the accuracy.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
from pathlib import Path

from tests.support.workload_rig import Host, Job


def main() -> None:
    flags = ["--steps=500", "--batch=128", "--checkpoint-every=100", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), Path(folder) / "cache")
        for name in ("cold", "compiled"):
            before = _cpu_s()
            hosts = job.run(*flags, hosts=2, devices=4)
            _show(name, hosts[0], _cpu_s() - before)
            job.workdir = str(Path(folder) / "again")


def _show(name: str, host: Host, cpu_s: float) -> None:
    events = host.events()
    start = events[0]["t"]
    phases = {event["name"]: event["t"] - start for event in host.events("phase")}
    steps = [event["ms"] for event in host.events("step")]
    print(f"{name} start")
    print("  phases  " + "  ".join(f"{phase} {at:.1f} s" for phase, at in phases.items()))
    print(f"  total   {events[-1]['t'] - start:.1f} s, {cpu_s:.1f} s of CPU on both hosts")
    print(f"  step    median {statistics.median(steps):.1f} ms, slowest {max(steps):.0f} ms")
    print(f"  test    {100 * host.events('metric')[-1]['value']:.2f} %")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
