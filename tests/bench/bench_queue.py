"""Measure the queue: `make bench` prints how long a plan takes, and a month of a lab under four rules.

The lab has eight slices of quota, of one type. Jobs come in bursts of three on average, from one person or five;
lengths are lognormal (median 35 min, sigma 1.2); the cloud takes 8 min on average to give a slice, a cold start costs
6 min of it, a warm one 1 min, and one on a slice that was wiped 4 min, as the environment is made again. `own`: one
slice a job, by the plan's order. `hand on`: the same, and a slice serves the next job of its owner at once. `lab`: the
next job in order, of any owner. `jobman`: eight workers that never give a slice back take the first job in the file
that fits.
Waits are from submission to the first minute of work.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tpujob.domain.capacity.dependencies import JobEnd
from tpujob.domain.capacity.entries import QueueEntry, Wanted
from tpujob.domain.capacity.planning import PASSED, plan
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.usage import RecentUsage, fade, sums
from tpujob.domain.model import State

SLICES, CHIPS, DAYS, SEEDS = 8, 8, 30, 3
MINUTE, DAY = 60.0, 86_400.0
MEDIAN, SIGMA, CLOUD = 35 * MINUTE, 1.2, 8 * MINUTE
COLD, WIPED, WARM = 6 * MINUTE, 4 * MINUTE, 1 * MINUTE
BURST = 3
SHAPE, POOL = "us-central2-b/v4-16/spot", "us-central2-b/v4/spot"
WANTED = Wanted("v4-16", SHAPE, POOL, (SHAPE, POOL, "us-central2/v4/spot"), CHIPS)
SETTINGS = QueueSettings(quota={POOL: SLICES * CHIPS})


class NoOthers:
    """No job refers to another one."""

    def end(self, job_id: str) -> JobEnd | None:
        return None

    def element(self, group: str, index: int) -> str | None:
        return None

    def group(self, group: str) -> tuple[str, int] | None:
        return None


def waiting(number: int, owner: str, since: float) -> QueueEntry:
    return QueueEntry(
        id=f"{number:06d}",
        number=number,
        owner=owner,
        state=State.QUEUED,
        since=since,
        waiting_since=since,
        wanted=(WANTED,),
        rate=1.0,
    )


@dataclass
class Lab:
    """One month under one rule."""

    rule: str
    random: Random
    load: float
    owners: int
    used: dict[str, tuple[float, float]] = field(default_factory=dict)  #: slice-seconds, as of
    queue: dict[int, tuple[QueueEntry, float]] = field(default_factory=dict)  #: with its length
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    running: dict[int, tuple[str, float]] = field(default_factory=dict)  #: owner, slice since
    waits: list[float] = field(default_factory=list)
    passed: dict[int, int] = field(default_factory=dict)  #: jobs that had its slice before
    cold: int = 0
    billed: float = 0.0
    ticket: Iterator[int] = field(default_factory=itertools.count)

    def at(self, when: float, kind: str, number: int) -> None:
        heapq.heappush(self.events, (when, next(self.ticket), kind, number))

    def arrivals(self) -> list[tuple[float, str, float]]:
        mean = MEDIAN * math.exp(SIGMA**2 / 2)
        gap = mean * BURST / (self.load * SLICES)
        jobs: list[tuple[float, str, float]] = []
        now = 0.0
        while (now := now + self.random.expovariate(1 / gap)) < DAYS * DAY:
            owner = f"owner-{self.random.randrange(self.owners)}"
            for _ in range(1 + int(self.random.expovariate(1 / (BURST - 0.5)))):
                jobs.append((now, owner, self.random.lognormvariate(math.log(MEDIAN), SIGMA)))
        return jobs

    def live(self) -> Lab:
        jobs = self.arrivals()
        for number, (when, _, _) in enumerate(jobs):
            self.at(when, "come", number)
        if self.rule == "jobman":
            self.billed = SLICES * DAYS * DAY
        while self.events:
            now, _, kind, number = heapq.heappop(self.events)
            if kind == "come":
                when, owner, length = jobs[number]
                self.queue[number] = waiting(number, owner, when), length
            elif kind == "end":
                owner, since = self.running.pop(number)
                self._use(owner, now - since, now)
                handed = self.rule in ("hand on", "lab")
                if handed and self._hand_on(number, owner, since, now):
                    continue
                if self.rule != "jobman":
                    self.billed += now - since
            self._start(now)
        return self

    def _use(self, owner: str, seconds: float, now: float) -> None:
        before, at = self.used.get(owner, (0.0, now))
        self.used[owner] = fade(before, now - at) + seconds, now

    def _order(self, now: float) -> list[int]:
        if self.rule == "jobman":
            return sorted(self.queue)
        parts = (("", owner, fade(n, now - at)) for owner, (n, at) in self.used.items())
        entries = [entry for entry, _ in self.queue.values()]
        order = plan(entries, QueueSettings(), {}, sums(parts, {}), now, NoOthers()).order
        return [int(job_id) for job_id in order]

    def _start(self, now: float) -> None:
        for number in self._order(now):
            if len(self.running) >= SLICES:
                return
            warm = self.rule == "jobman"
            wait = 0.0 if warm else self.random.expovariate(1 / CLOUD)
            self._begin(number, now + wait, WARM if warm else COLD)

    def _hand_on(self, ended: int, owner: str, since: float, now: float) -> bool:
        passed = self.passed.pop(ended, 0)
        for number in self._order(now):
            own = self.queue[number][0].owner == owner
            if self.rule == "lab" or own:
                self.billed += now - since
                self._begin(number, now, WARM if own else WIPED)
                self.passed[number] = passed + 1
                return True
            if passed >= PASSED:  # another owner's job before it waits for the same
                return False
        return False

    def _begin(self, number: int, ready: float, set_up: float) -> None:
        entry, length = self.queue.pop(number)
        works = ready + set_up
        self.cold += set_up == COLD
        self.waits.append(works - entry.since)
        self.running[number] = entry.owner, ready
        self.at(works + length, "end", number)


def month(rule: str, load: float, owners: int) -> tuple[float, float, float]:
    """Return the mean wait in minutes, the share of cold starts, and the slice-hours."""
    labs = [Lab(rule, Random(seed), load, owners).live() for seed in range(SEEDS)]
    waits = [wait for lab in labs for wait in lab.waits]
    cold = sum(lab.cold for lab in labs) / len(waits)
    hours = statistics.mean(lab.billed for lab in labs) / 3600
    return statistics.mean(waits) / MINUTE, cold, hours


def plan_time(jobs: int) -> float:
    """Return the median of the CPU time of a plan, in milliseconds, with 20 owners."""
    random = Random(1)
    entries = [waiting(n, f"owner-{random.randrange(20)}", random.random()) for n in range(jobs)]
    taken: list[float] = []
    for _ in range(5):
        began = time.process_time()
        plan(entries, SETTINGS, {}, RecentUsage(), 100.0, NoOthers())
        taken.append(time.process_time() - began)
    return statistics.median(taken) * 1000


def main() -> None:
    for jobs in (1_000, 10_000):
        print(f"plan of {jobs:,} jobs that wait: {plan_time(jobs):.1f} ms of CPU time")
    for load, owners in itertools.product((0.3, 0.6, 0.85), (1, 5)):
        own = month("own", load, owners)
        for rule in ("own", "hand on", "lab", "jobman"):
            wait, cold, hours = month(rule, load, owners) if rule != "own" else own
            print(
                f"load {load}, {owners} owners: {rule:8} mean wait {wait:4.0f} min ({wait / own[0]:.2f} of own), "
                f"cold starts {cold:.0%}, {hours:,.0f} slice-hours ({hours / own[2]:.2f})"
            )


if __name__ == "__main__":
    main()
