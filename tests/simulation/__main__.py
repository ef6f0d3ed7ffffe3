"""`python -m tests.simulation`: play seeds, print figures, and shrink what violates an invariant. See `--help`."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from tests.simulation.play import Result, play
from tests.simulation.profile import RATES
from tests.simulation.shrink import command, history, shrink

FIXED = 0.6  #: of the seeds are the same each time; the others are fresh, and printed


@dataclass(frozen=True)
class Summary:
    seed: int
    violation: str
    effects: int
    faults: int
    kills: int
    pauses: int
    days: float
    seconds: float


def summary(seed: int) -> Summary:
    r = play(seed)
    violation = str(r.violation) if r.violation else ""
    c = r.counts
    return Summary(seed, violation, c.effects, r.faults, c.kills, c.pauses, r.days, r.seconds)


def seeds(count: int, first: int | None) -> list[int]:
    if first is not None:
        return list(range(first, first + count))
    fixed = int(count * FIXED)
    base = 1_000_000 + secrets.randbelow(1_000_000_000)
    return [*range(fixed), *range(base, base + count - fixed)]


def many(wanted: list[int], processes: int) -> list[Summary]:
    done: list[Summary] = []
    begun = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        for future in as_completed([pool.submit(summary, seed) for seed in wanted]):
            one = future.result()
            done.append(one)
            if one.violation:
                print(f"seed {one.seed}: {one.violation}", flush=True)
            if len(done) % 100 == 0:
                print(f"{len(done)} seeds in {time.monotonic() - begun:.0f} s", flush=True)
    return done


def figures(done: list[Summary]) -> str:
    days = sum(r.days for r in done)
    effects, faults = sum(r.effects for r in done), sum(r.faults for r in done)
    kills, pauses = sum(r.kills for r in done), sum(r.pauses for r in done)
    bad = sum(bool(r.violation) for r in done)
    cpu = sum(r.seconds for r in done)
    return (
        f"{len(done)} seeds, {days:.1f} virtual days, {effects:,} effects, {faults:,} faults, {kills:,} kills, "
        f"{pauses:,} pauses, {bad} violations; {cpu / len(done):.2f} s each"
    )


def explain(seed: int) -> None:
    """The shortest history found that shows the violation, and how to see it again."""
    print(f"\nseed {seed}: looking for a shorter history ...", flush=True)
    small = shrink(seed)
    print(f"{small.result.violation}\n" + "\n".join(history(small.result)))
    print(f"replay: {command(small)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, help="play that many from this one on")
    parser.add_argument("--seed", type=int, help="replay one and print its whole log")
    parser.add_argument(
        "--off", default="", help="faults left out, with commas: " + ", ".join(RATES)
    )
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--backends", type=int)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.seed is not None:
        off = frozenset(filter(None, given.off.split(",")))
        result: Result = play(given.seed, off=off, jobs=given.jobs, backends=given.backends)
        print("\n".join(result.log))
        print(result.violation or "no violation")
        return 1 if result.violation else 0
    done = many(seeds(given.seeds, given.first), given.processes)
    fresh = [r.seed for r in done if r.seed >= 1_000_000]
    print(figures(done))
    if fresh and given.first is None:
        print(f"fresh seeds: --first {min(fresh)} --seeds {len(fresh)}")
    violating = sorted(r.seed for r in done if r.violation)
    for seed in violating[:3]:
        explain(seed)
    return 1 if violating else 0


if __name__ == "__main__":
    sys.exit(main())
