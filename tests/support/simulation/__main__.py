"""`python -m tests.support.simulation`: play seeds and kill points, and shrink what fails.
See `--help`."""

from __future__ import annotations

import argparse
import gc
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from tests.support.simulation import bugs, killpoints
from tests.support.simulation.play import play
from tests.support.simulation.profile import RATES
from tests.support.simulation.scenarios import SCENARIOS
from tests.support.simulation.shrink import command, history, shrink

T = TypeVar("T")
R = TypeVar("R")
FULL = 10  #: every so many-th seed is played in full, the others short
SHOWN = 3  #: violations that are shrunk and explained
#: seeds that showed a bug once, one a line
KNOWN = Path(__file__).parent / "seeds.txt"


@dataclass(frozen=True)
class Seed:
    number: int
    short: bool
    lab: bool = True  #: several people share the queue

    def __str__(self) -> str:
        words = (str(self.number), "--short" * self.short, "" if self.lab else "--off lab")
        return " ".join(filter(None, words))

    @property
    def off(self) -> frozenset[str]:
        return frozenset() if self.lab else frozenset({"lab"})


@dataclass(frozen=True)
class Summary:
    seed: Seed
    violation: str
    effects: int
    faults: int
    kills: int
    pauses: int
    days: float
    seconds: float
    detected: dict[str, list[float]] = field(default_factory=dict)
    job_hours: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)


def summary(seed: Seed) -> Summary:
    r = play(seed.number, short=seed.short, off=seed.off)
    violation = str(r.violation) if r.violation else ""
    c = r.counts
    return Summary(
        seed, violation, c.effects, r.faults, c.kills, c.pauses, r.days, r.seconds, r.detected,
        r.job_hours, c.calls,
    )  # fmt: skip


def seeds(count: int, first: int, fresh: float, full: int | None = None) -> list[Seed]:
    """So many, after those that showed a bug once; no seed twice, and the long ones first. `full`: of those that
    showed a bug in full, only the first ones."""
    fixed = count - int(count * fresh)
    base = 1_000_000 + secrets.randbelow(1_000_000_000)
    numbers = (*range(first, first + fixed), *range(base, base + count - fixed))
    return sorted(dict.fromkeys([*known(full), *map(_seed, numbers)]), key=lambda seed: seed.short)


def known(full: int | None = None) -> list[Seed]:
    """Those from before people shared the queue are played as they were then."""
    lines = [line.split() for line in KNOWN.read_text().splitlines() if line[:1] not in ("", "#")]
    every = [Seed(int(words[0]), "--short" in words, "--lab" in words) for words in lines]
    return [seed for seed in every if not seed.short][:full] + [
        seed for seed in every if seed.short
    ]


def _seed(number: int) -> Seed:
    return Seed(number, short=number % FULL != 0)


def many(what: str, do: Callable[[T], R], given: Sequence[T], processes: int) -> list[R]:
    done: list[R] = []
    begun = time.monotonic()
    with ProcessPoolExecutor(processes, initializer=_prepare) as pool:
        for future in as_completed([pool.submit(do, one) for one in given]):
            done.append(future.result())
            told = str(getattr(done[-1], "violation", done[-1]) or "")
            if told:
                print(f"{getattr(done[-1], 'seed', '')} {told.splitlines()[0]}", flush=True)
            if len(done) % (25 if what == "seeds" else 500) == 0:
                print(f"{len(done)} {what} in {time.monotonic() - begun:.0f} s", flush=True)
    return done


def _prepare() -> None:
    """Of each process. A history is kept to its end: looking for garbage in it often finds little."""
    logging.disable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def figures(done: Sequence[Summary]) -> str:
    days = sum(r.days for r in done)
    effects, faults = sum(r.effects for r in done), sum(r.faults for r in done)
    kills, pauses = sum(r.kills for r in done), sum(r.pauses for r in done)
    bad, n = sum(bool(r.violation) for r in done), len(done)
    cpu = sum(r.seconds for r in done)
    full = sum(not r.seed.short for r in done)
    return (
        f"{n} seeds ({full} in full), {days:.1f} virtual days, {effects:,} effects, {faults:,} faults, "
        f"{kills:,} kills, {pauses:,} pauses, {bad} violations; for each seed {faults / n:,.0f} faults, "
        f"{kills / n:.0f} kills, {cpu / n:.1f} s"
    )


#: what an effect of a backend costs in the cloud
BILLED: Mapping[str, Mapping[str, int]] = {
    "class A": {"objects": 1, "copy": 1},
    "class B": {"get": 1},
    "calls of Cloud TPU": {"look": 2, "survey": 2, "list": 2, "create": 1, "delete": 2},
    "writes of the store": {"submit": 1, "commit": 1, "lease": 1, "release": 1, "remove": 1, "accuse": 1},
}  # fmt: skip


def operations(done: Sequence[Summary]) -> str:
    """Of the backends, which look less often here at what goes well (`SimReconciler`)."""
    hours = sum(r.job_hours for r in done) or 1.0
    calls = sum((r.calls for r in done), Counter[str]())
    words = (
        f"{sum(calls[name] * each for name, each in effects.items()) / hours:.0f} {what}"
        for what, effects in BILLED.items()
    )
    return f"for each of {hours:,.0f} job-hours: {', '.join(words)}"


def detection(done: Sequence[Summary]) -> str:
    """How long it took from what could be seen to the decision, while every service answered."""
    words: list[str] = []
    for kind in sorted({k for r in done for k in r.detected}):
        times = sorted(t for r in done for t in r.detected.get(kind, ()))
        half, most = times[len(times) // 2], times[int(len(times) * 0.99)]
        words.append(f"{kind} {half:.0f} s ({most:.0f} s)")
    return "decided upon after, at the median (99th percentile): " + ", ".join(words)


def point(one: killpoints.Point) -> str:
    violation = one.play()
    return f"{violation}; replay: {one.command()}" if violation else ""


def explain(seed: Seed) -> None:
    """The shortest history found that shows the violation, and how to see it again."""
    print(f"\nseed {seed}: looking for a shorter history ...", flush=True)
    small = shrink(seed.number, short=seed.short, off=seed.off)
    print(f"{small.result.violation}\n" + "\n".join(history(small.result)))
    print(f"replay: {command(small)}")


def replay(given: argparse.Namespace) -> int:
    off = frozenset(filter(None, given.off.split(",")))
    result = play(
        given.seed,
        short=given.short,
        off=off,
        jobs=given.jobs,
        backends=given.backends,
        hours=given.hours,
    )
    print("\n".join(result.log))
    print(result.violation or "no violation")
    return 1 if result.violation else 0


def replay_point(text: str) -> int:
    violation = killpoints.parse(text).play()
    print("\n".join(violation.__notes__) if violation else "no violation")
    return 1 if violation else 0


def play_points(most: int, processes: int) -> tuple[int, int]:
    """How many were played, and how many of them violated something."""
    if not most:
        return 0, 0
    every = [p for name in SCENARIOS for p in killpoints.some(name, most)]
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
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given)
    if given.point:
        return replay_point(given.point)
    if given.where:
        many("places", partial(bugs.shows, given.where), bugs.PLACES, given.processes)
        return 0
    logging.disable(logging.CRITICAL)
    wanted = seeds(given.seeds, given.first, given.fresh, given.full)
    done = many("seeds", summary, wanted, given.processes)
    fresh = [r.seed.number for r in done if r.seed.number >= 1_000_000]
    print(figures(done))
    print(detection(done))
    print(operations(done))
    if fresh:
        print(f"fresh seeds: --first {min(fresh)} --seeds {len(fresh)}")
    points, bad_points = play_points(given.points, given.processes)
    violating = sorted((r.seed for r in done if r.violation), key=lambda seed: seed.number)
    for seed in violating[:SHOWN]:
        explain(seed)
    failed = len(violating) + bad_points
    print(f"simulation: {len(done) + points - failed} passed, {failed} failed")
    if given.junitxml:
        write_report(given.junitxml, len(done) + points, failed)
    return 1 if failed else 0


def write_report(path: Path, tests: int, failed: int) -> None:
    """As pytest writes one, as far as it counts."""
    counts = {"tests": tests, "failures": failed, "errors": 0, "skipped": 0}
    suite = ElementTree.Element("testsuite", {name: str(n) for name, n in counts.items()})
    ElementTree.ElementTree(suite).write(path)


if __name__ == "__main__":
    sys.exit(main())
