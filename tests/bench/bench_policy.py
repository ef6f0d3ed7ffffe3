"""Measure the rule of deadlines on recorded spot capacity: `make bench POLICY=1` prints costs, and when jobs end.

Traces: nine zones of another cloud; whether one machine was to be had, every 195 s for 45 days (`../shared/traces`, or
TPUJOB_SPOT_TRACES=FOLDER). A job has 48 h of work and loses 12 min with each start; a chip-hour costs $1.20 on demand
and $0.245 as spot. In each zone, or each group of three zones, a job begins every 24 h (in groups of three: every
seventh of them). Costs are those of the same job on demand.

`rule` is that of `tpujob/domain/capacity/deadline.py`, which the backend follows. `informed` is the same for a job on
demand that sees whether spot is there, and moves to it also behind the line. `greedy` is the net without the line;
`optimum` is the least cost for somebody who knows the future, in units of 65 s, of every seventh job.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from tpujob.domain.capacity.deadline import JobDeadline, Terms

HOUR = 3600.0
WORK, START, EVERY = 48 * HOUR, 720.0, 24 * HOUR
SAFE, SPOT = 1.20, 0.245  #: dollars of a chip-hour
DEADLINES = (54, 60, 72, 96)  #: hours
LONGEST = 240  #: hours of a job without a deadline
SELDOM = 7  #: of so many jobs one is played, where there are many groups or where it takes long
UNIT = 65.0  #: seconds: a third of a sample
FOLDER = Path(
    os.environ.get("TPUJOB_SPOT_TRACES", Path(__file__).parents[2].parent / "shared/traces")
)

#: whether there is spot at each sample
Samples = list[bool]


@dataclass(frozen=True)
class Traces:
    gap: float  #: seconds between two samples
    zones: list[Samples]

    def firsts(self, hours: float) -> Iterator[int]:
        """Yield the samples at which jobs begin that may take so many hours."""
        at = 0.0
        while at + hours * HOUR <= len(self.zones[0]) * self.gap:
            yield round(at / self.gap)
            at += EVERY


def load(folder: Path) -> Traces:
    bodies = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    (gap,) = {float(body["metadata"]["gap_seconds"]) for body in bodies}
    return Traces(gap, [[bool(n) for n in body["data"]] for body in bodies])


# Policies: what a job holds from now on that holds nothing, or a safe slice ------------------------------------------

Policy = Callable[[JobDeadline, float, bool, bool], str]


def rule(facts: JobDeadline, now: float, safe: bool, spot: bool) -> str:
    """Follow the rule of deadlines. A spot slice is used until it is taken away; a safe one is given up without knowing
    whether spot is there."""
    if safe and not facts.may_wait(now):
        return "safe"
    terms = facts.terms(now)
    if terms is Terms.SAFE or (terms is Terms.EITHER and not spot):
        return "safe"
    return "spot" if spot else ""


def informed(facts: JobDeadline, now: float, safe: bool, spot: bool) -> str:
    moves = safe and spot and facts.terms(now) is not Terms.SAFE
    return "spot" if moves else rule(facts, now, safe, spot)


def greedy(facts: JobDeadline, now: float, safe: bool, spot: bool) -> str:
    if safe or facts.terms(now) is Terms.SAFE:
        return "safe"
    return "spot" if spot else ""


def spot_only(facts: JobDeadline, now: float, safe: bool, spot: bool) -> str:
    return "spot" if spot else ""


# One job -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    cost: float  #: part of the cost of the same job on demand
    hours: float  #: until its end, or until it is given up
    met: bool  #: whether it ended in time


ON_DEMAND = SAFE * (WORK + START) / HOUR


def play(
    zones: Sequence[Samples], gap: float, first: int, hours: float | None, policy: Policy
) -> Run:
    """Play one job that begins at a sample. `hours`: of its deadline; None: it has none."""
    limit = (LONGEST if hours is None else hours) * HOUR
    now, cost, setup, left = 0.0, 0.0, 0.0, WORK
    holds, own = "", zones[0]  # and the zone of its spot slice
    tick = first
    while now < limit and left > 0:
        there = [zone for zone in zones if zone[tick]]
        if holds != "spot" or not own[tick]:
            facts = JobDeadline(limit, 0.0, WORK, left, START)
            choice = policy(facts, now, holds == "safe", bool(there))
            if choice != holds or choice == "spot":
                holds, setup, own = choice, START, there[0] if there else own
        starting = min(setup, gap)
        used = starting + min(left, gap - starting) if holds else gap
        if holds:
            cost += (SPOT if holds == "spot" else SAFE) * used / HOUR
            setup -= starting
            left -= used - starting
        now += used
        tick += 1
    return Run(cost / ON_DEMAND, now / HOUR, left <= 0 and now <= limit)


def optimum(samples: np.ndarray[Any, Any], hours: float) -> float:
    """Return the least cost of a job over these samples, by dynamic programming from its deadline backwards."""
    ticks, step = int(hours * HOUR / (3 * UNIT)), 3
    units, phases = round(WORK / UNIT), [11, 8, 5, 2, 0]  # units of a start that are left
    work = np.arange(units + 1)
    made = [step - min(step, phase) for phase in phases]
    after = [np.maximum(0, work - n) for n in made]
    used = [np.where(work > n, step, step - n + work) * (work > 0) for n in made]
    prices = (SAFE, SPOT)
    idle = np.where(work == 0, 0.0, np.inf)
    values = np.tile(idle, (2, len(phases), 1))  # of what it holds and its phase
    for tick in reversed(range(ticks)):
        stays = np.empty_like(values)
        for kind, price in enumerate(prices):
            for n in range(len(phases)):
                following = values[kind, min(n + 1, len(phases) - 1)]
                stays[kind, n] = price * used[n] + following[after[n]]
        if not samples[tick]:
            stays[1] = np.inf
        idle = np.minimum(idle, stays[:, 0].min(axis=0))
        values = np.minimum(stays, idle)
    return float(idle[units]) * UNIT / HOUR / ON_DEMAND


# The tables ----------------------------------------------------------------------------------------------------------


def runs(traces: Traces, size: int, hours: float | None, policy: Policy) -> list[Run]:
    """Play the jobs of all groups of so many zones."""
    every = SELDOM if 1 < size < len(traces.zones) else 1
    longest = LONGEST if hours is None else max(DEADLINES)
    firsts = [*traces.firsts(longest)][::every]
    groups = [*combinations(traces.zones, size)]
    return [play(zones, traces.gap, first, hours, policy) for zones in groups for first in firsts]


def costs(traces: Traces, size: int, policy: Policy) -> str:
    cells: list[str] = []
    for hours in DEADLINES:
        played = runs(traces, size, hours, policy)
        missed = sum(not run.met for run in played)
        cost = statistics.mean(run.cost for run in played)
        cells.append(f"{cost:.3f}" + (f" ({missed} missed)" if missed else ""))
    return " | ".join(cells)


def optima(traces: Traces) -> str:
    firsts = [*traces.firsts(max(DEADLINES))][::SELDOM]
    zones = [np.array(zone) for zone in traces.zones]
    means = [
        statistics.mean(optimum(zone[first:], hours) for zone in zones for first in firsts)
        for hours in DEADLINES
    ]
    return " | ".join(f"{mean:.3f}" for mean in means)


def lines(traces: Traces) -> Iterator[str]:
    titles = " | ".join(f"{hours} h" for hours in DEADLINES)
    yield f"| zones | policy | {titles} |"
    yield "|" + "---|" * (2 + len(DEADLINES))
    yield f"| any | on demand | {' | '.join(['1.000'] * len(DEADLINES))} |"
    for size in (1, 3, len(traces.zones)):
        for policy in (rule, informed, greedy) if size < len(traces.zones) else (rule, greedy):
            yield f"| {size} | {policy.__name__} | {costs(traces, size, policy)} |"
        if size == 1:
            yield f"| 1 | optimum | {optima(traces)} |"
    yield ""
    for size in (1, 3, len(traces.zones)):
        played = runs(traces, size, None, spot_only)
        mean = statistics.mean(run.hours for run in played)
        late = sum(not run.met for run in played) / len(played)
        yield f"spot alone, no deadline, {size} zones: mean end after {mean:.0f} h, {late:.0%} not within {LONGEST} h"


def main() -> None:
    if not [*FOLDER.glob("*.json")]:
        raise SystemExit(f"no traces in {FOLDER}: TPUJOB_SPOT_TRACES=FOLDER has others")
    for line in lines(load(FOLDER)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
