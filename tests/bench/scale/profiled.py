"""Runs a module as `python -m` does, under a profiler in each thread: `python -m tests.bench.scale.profiled FILE MODULE
ARGUMENTS`. What took the most CPU time is in FILE once the process has ended."""

from __future__ import annotations

import cProfile
import pstats
import runpy
import sys
import threading
import time

_profiles: list[cProfile.Profile] = []


def main() -> None:
    into, module = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    run = threading.Thread.run

    def profiled(self: threading.Thread) -> None:
        _measured().runcall(run, self)

    threading.Thread.run = profiled
    try:
        _measured().runcall(runpy.run_module, module, run_name="__main__", alter_sys=True)
    finally:
        with open(into, "w") as out:
            stats = pstats.Stats(stream=out)
            for profile in _profiles:
                profile.create_stats()
                stats.add(profile)
            for order, rows in (("tottime", 60), ("cumulative", 120)):
                stats.sort_stats(order).print_stats(rows)


def _measured() -> cProfile.Profile:
    """By the thread's own CPU time, so that waiting costs nothing."""
    _profiles.append(cProfile.Profile(time.thread_time))
    return _profiles[-1]


if __name__ == "__main__":
    main()
