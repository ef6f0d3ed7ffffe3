"""Measure the estimates: estimates each of 500 jobs from the earlier ones, then plays it.

Prints how often the range holds what the ledger says, how often its upper bound does, and the median error. Exits with
1 where a figure misses its target.
"""

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from tests.bench.estimator import first
from tests.bench.estimator.lab import Trial, trials
from tests.bench.estimator.spot import Zone, zones

#: wanted of the range and of the bound P90: from, to
RANGE, BOUND = (0.9, 1.0), (0.85, 0.95)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep the first jobs for the tests")
    args = parser.parse_args()
    markets, source = zones()
    begun = time.perf_counter()
    share = math.ceil(args.jobs / len(markets))
    counts = [min(share, args.jobs - i * share) for i in range(len(markets))]
    with ProcessPoolExecutor(args.processes) as pool:
        done = pool.map(_zone, markets, counts, [args.seed] * len(markets))
        all_of_them = [trial for some in done for trial in some]
    if args.keep:
        first.keep(all_of_them)
    print(
        f"{len(all_of_them)} jobs, {source}, seed {args.seed}, {time.perf_counter() - begun:.0f} s"
    )
    print(_header())
    print(_row("dollars", all_of_them, dollars))
    print(_row("hours", all_of_them, hours))
    early = [trial for trial in all_of_them if trial.number < first.JOBS]
    print(_row(f"dollars, first {first.JOBS} jobs", early, dollars))
    later = [trial for trial in all_of_them if trial.number >= first.JOBS]
    print(_row("dollars, later jobs", later, dollars))
    for zone in markets:
        in_zone = [trial for trial in all_of_them if trial.zone == zone.name]
        print(_row(f"dollars, {zone.name}", in_zone, dollars))
    held, bound, _ = score(all_of_them, dollars)
    good = RANGE[0] <= held <= RANGE[1] and BOUND[0] <= bound <= BOUND[1]
    print(
        f"the range (P2.5 to P97.5) held {held:.1%} (wanted: at least {RANGE[0]:.0%}), "
        f"P90 held {bound:.1%} (wanted: {BOUND[0]:.0%} to {BOUND[1]:.0%})"
    )
    return 0 if good else 1


Figures = Callable[[Trial], tuple[float, Sequence[float]]]


def dollars(trial: Trial) -> tuple[float, Sequence[float]]:
    """Return what the job cost, and its estimate in the order of a `Range`."""
    return trial.paid, trial.micros


def hours(trial: Trial) -> tuple[float, Sequence[float]]:
    return trial.wall, trial.forecast.wall


def score(trials: Sequence[Trial], of: Figures) -> tuple[float, float, float]:
    """Return the share that the range holds, the share that P90 holds, and the median error of P50."""
    pairs = [of(trial) for trial in trials]
    held = sum(estimate[0] <= true <= estimate[4] for true, estimate in pairs) / len(pairs)
    bound = sum(true <= estimate[3] for true, estimate in pairs) / len(pairs)
    return held, bound, median(abs(estimate[2] - true) / true for true, estimate in pairs)


def _zone(zone: Zone, count: int, seed: int) -> list[Trial]:
    logging.disable(logging.CRITICAL)
    return [*trials(zone, count, seed)]


def _header() -> str:
    return f"{'':24} {'jobs':>5} {'in range':>8} {'<= P90':>7} {'median error':>13}"


def _row(name: str, some: Sequence[Trial], of: Figures) -> str:
    if not some:
        return f"{name:24} {0:5}"
    held, bound, error = score(some, of)
    return f"{name:24} {len(some):5} {held:8.1%} {bound:7.1%} {error:13.1%}"


if __name__ == "__main__":
    sys.exit(main())
