"""`python -m tests.support.simulation`: play seeds and kill points, and shrink what fails.
See `--help`."""

import argparse
import gc
import logging
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from tests.support.simulation import bugs, killpoints
from tests.support.simulation.play import Result
from tests.support.simulation.profile import NEW, RATES, Seed
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.shrink import command, history, replay, shrink

T = TypeVar("T")
R = TypeVar("R")
FULL = 10  #: every so many-th seed is played in full, the others short
SHOWN = 3  #: violations that are shrunk and explained
#: seeds that showed a bug once, one a line
KNOWN = Path(__file__).parent / "seeds.txt"


def summary(seed: Seed) -> Result:
    """Play a seed; leave out its log, which is long."""
    return replace(replay(seed), log=[])


def seeds(count: int, first: int, fresh: float, full: int | None = None) -> list[Seed]:
    """Return so many seeds after the known ones, none twice, the long ones first. `full`: how many of the known
    long ones; None: all."""
    fixed = count - int(count * fresh)
    base = 1_000_000 + secrets.randbelow(1_000_000_000)
    numbers = (*range(first, first + fixed), *range(base, base + count - fixed))
    numbered = [Seed(number, short=number % FULL != 0) for number in numbers]
    return sorted(dict.fromkeys([*known(full), *numbered]), key=lambda seed: seed.short)


def known(full: int | None = None) -> list[Seed]:
    """Return the known seeds, without the faults that are newer than they are."""
    lines = [line.split() for line in KNOWN.read_text().splitlines() if line[:1] not in ("", "#")]
    off = {True: NEW, False: NEW | {"lab"}}
    every = [Seed(int(words[0]), "--short" in words, off["--lab" in words]) for words in lines]
    return [seed for seed in every if not seed.short][:full] + [
        seed for seed in every if seed.short
    ]


def many(noun: str, do: Callable[[T], R], items: Sequence[T], processes: int) -> list[R]:
    done: list[R] = []
    begun = time.monotonic()
    with ProcessPoolExecutor(processes, initializer=_prepare) as pool:
        for future in as_completed([pool.submit(do, item) for item in items]):
            done.append(future.result())
            text = str(getattr(done[-1], "violation", done[-1]) or "")
            if text:
                print(f"{getattr(done[-1], 'seed', '')} {text.splitlines()[0]}", flush=True)
            if len(done) % (25 if noun == "seeds" else 500) == 0:
                print(f"{len(done)} {noun} in {time.monotonic() - begun:.0f} s", flush=True)
    return done


def _prepare() -> None:
    """Prepare each process. A history is kept to its end, so frequent garbage collection finds little."""
    logging.disable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def figures(done: Sequence[Result]) -> str:
    n, days, cpu = len(done), sum(r.days for r in done), sum(r.seconds for r in done)
    effects, faults = sum(r.counts.effects for r in done), sum(r.counts.faults for r in done)
    kills, pauses = sum(r.counts.kills for r in done), sum(r.counts.pauses for r in done)
    bad, full = sum(bool(r.violation) for r in done), sum(not r.seed.short for r in done)
    return (
        f"{n} seeds ({full} in full), {days:.1f} virtual days, {effects:,} effects, {faults:,} faults, "
        f"{kills:,} kills, {pauses:,} pauses, {bad} violations; for each seed {faults / n:,.0f} faults, "
        f"{kills / n:.0f} kills, {cpu / n:.1f} s"
    )


def detection(done: Sequence[Result]) -> str:
    """Return the times from a visible fact to the decision, while every service answered."""
    words: list[str] = []
    for kind in sorted({k for r in done for k in r.detected}):
        times = sorted(t for r in done for t in r.detected.get(kind, ()))
        median, nearly_all = times[len(times) // 2], times[int(len(times) * 0.99)]
        words.append(f"{kind} {median:.0f} s ({nearly_all:.0f} s)")
    return "decided upon after, at the median (99th percentile): " + ", ".join(words)


def point(kill_point: killpoints.Point) -> str:
    violation = kill_point.play()
    return f"{violation}; replay: {kill_point.command()}" if violation else ""


def explain(seed: Seed) -> None:
    """Print the shortest history found that shows the violation, and the command that replays it."""
    print(f"\nseed {seed}: looking for a shorter history ...", flush=True)
    small = shrink(seed)
    print(f"{small.violation}\n" + "\n".join(history(small)))
    print(f"replay: {command(small.seed)}")


def show(seed: Seed) -> int:
    result = replay(seed)
    print("\n".join(result.log))
    print(result.violation or "no violation")
    return 1 if result.violation else 0


def replay_point(text: str) -> int:
    violation = killpoints.parse(text).play()
    print("\n".join(violation.__notes__) if violation else "no violation")
    return 1 if violation else 0


def play_points(limit: int, processes: int) -> tuple[int, int]:
    """Return the number of points that were played, and the number that violated a rule."""
    if not limit:
        return 0, 0
    every = [p for name in SCENARIOS for p in killpoints.some(name, limit)]
    bad = [text for text in many("points", point, every, processes) if text]
    print(f"{len(every)} kill points of {len(SCENARIOS)} stories, {len(bad)} violations")
    return len(every), len(bad)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=100, help="how many, besides those of seeds.txt (100)"
    )
    parser.add_argument(
        "--full", type=int, help="of those of seeds.txt that are played in full, the first (all)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first of those played always")
    parser.add_argument("--fresh", type=float, default=0.0, help="the part that is new each time")
    parser.add_argument("--points", type=int, default=240, help="of each story, at most (240)")
    parser.add_argument("--seed", type=int, help="replay one and print its whole log")
    parser.add_argument("--point", help="replay a point: STORY:EFFECT:before|after|pause|cancel")
    parser.add_argument("--where", metavar="BUG", help="print where a planted bug shows")
    parser.add_argument("--short", action="store_true", help="of the seed that is replayed")
    off = "faults left out, with commas: " + ", ".join(RATES)
    parser.add_argument("--off", default="", help=off)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--backends", type=int)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--junitxml", type=Path, help="a file for the counts, as pytest writes one")
    args = parser.parse_args()
    if args.seed is not None:
        off = frozenset(filter(None, args.off.split(",")))
        seed = Seed(args.seed, args.short, off, args.jobs, args.backends, args.hours)
        return show(seed)
    if args.point:
        return replay_point(args.point)
    if args.where:
        many("places", partial(bugs.shows, args.where), bugs.PLACES, args.processes)
        return 0
    logging.disable(logging.CRITICAL)
    chosen = seeds(args.seeds, args.first, args.fresh, args.full)
    done = many("seeds", summary, chosen, args.processes)
    fresh = [r.seed.number for r in done if r.seed.number >= 1_000_000]
    print(figures(done))
    print(detection(done))
    if fresh:
        print(f"fresh seeds: --first {min(fresh)} --seeds {len(fresh)}")
    points, bad_points = play_points(args.points, args.processes)
    violating = sorted((r.seed for r in done if r.violation), key=lambda seed: seed.number)
    for seed in violating[:SHOWN]:
        explain(seed)
    failed = len(violating) + bad_points
    print(f"simulation: {len(done) + points - failed} passed, {failed} failed")
    if args.junitxml:
        write_report(args.junitxml, len(done) + points, failed)
    return 1 if failed else 0


def write_report(path: Path, tests: int, failed: int) -> None:
    """Write the counts of a report as pytest does."""
    counts = {"tests": tests, "failures": failed, "errors": 0, "skipped": 0}
    suite = ElementTree.Element("testsuite", {name: str(n) for name, n in counts.items()})
    ElementTree.ElementTree(suite).write(path)


if __name__ == "__main__":
    sys.exit(main())
