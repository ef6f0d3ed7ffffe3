"""Measure the queue with jobs of all sizes: `make bench-queue` prints waits by size, what each owner gets, false waits.

Sizes: two weeks of a lab of five with 64 chips; jobs need 4 to 64 of them and come in bursts of three on average;
lengths are lognormal (median 35 min, sigma 1.2), a start takes 6 min. `time` in the files is right, up to 5 times too
long, or not there, so that each owner's earlier jobs say it.
Parts: the first hour of five owners with endless jobs of 10 min on 24 chips; one of them writes a `time` of a second,
or names three shares that are open to everybody.
Refused: a job waits for 32 chips of a quota of 24 that the cloud keeps to itself; how long a small job behind it waits.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random

from tests.bench.bench_queue import DAY, MEDIAN, MINUTE, SIGMA, NoOthers
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.entries import QueueEntry, Wanted
from tpujob.domain.capacity.planning import QueuePlan, plan
from tpujob.domain.capacity.run_lengths import charged, usual
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.usage import RecentUsage, fade, sums
from tpujob.domain.failures import retry
from tpujob.domain.model import Cause, Slice, State
from tpujob.domain.observations import Circuit

CHIPS, DAYS, LOAD, SEEDS, START = 64, 14, 0.6, 3, 6 * MINUTE
SIZES = {4: 0.55, 8: 0.25, 16: 0.12, 32: 0.06, 64: 0.02}
POOL = "us-central2-b/v4/spot"
OWNERS = ("ada", "bob", "cyd", "dan", "eve")


@lru_cache
def wanted(chips: int) -> Wanted:
    shape = f"us-central2-b/v4-{2 * chips}/spot"
    return Wanted(f"v4-{2 * chips}", shape, POOL, (shape, POOL, "us-central2/v4/spot"), chips)


@dataclass(frozen=True)
class Task:
    at: float
    owner: str
    chips: int
    seconds: float
    time: float = 0.0  #: that its file states
    share: str = ""


@dataclass
class Lab:
    """Tasks that start by the plan on so many chips."""

    tasks: list[Task]
    settings: QueueSettings
    until: float = math.inf
    began: dict[int, float] = field(default_factory=dict[int, float])
    waiting: dict[int, QueueEntry] = field(default_factory=dict[int, QueueEntry])
    running: set[int] = field(default_factory=set[int])
    used: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    runs: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=20))
    )

    def live(self) -> Lab:
        ticket = itertools.count()
        events = [(task.at, next(ticket), number) for number, task in enumerate(self.tasks)]
        heapq.heapify(events)
        again = math.inf
        while events and min(events[0][0], again) <= self.until:
            now = min(events[0][0], again)
            while events and events[0][0] <= now:
                _, _, number = heapq.heappop(events)
                if number in self.began:
                    self._end(number, now)
                else:
                    self.waiting[number] = self._entry(number)
            made = self._plan(now)
            again = made.next_at
            for number in [int(job) for job in made.order if made.places[job].ask]:
                self.began[number] = now
                self.running.add(number)
                del self.waiting[number]
                heapq.heappush(
                    events, (now + START + self.tasks[number].seconds, next(ticket), number)
                )
        return self

    def _entry(self, number: int) -> QueueEntry:
        task = self.tasks[number]
        return QueueEntry(
            f"{number:06d}", number, task.owner, State.QUEUED, task.at, task.at, share=task.share,
            wanted=(wanted(task.chips),), rate=float(task.chips), time=task.time, program="train",
        )  # fmt: skip

    def _holds(self, number: int) -> QueueEntry:
        entry, way = self._entry(number), wanted(self.tasks[number].chips)
        return replace(entry, state=State.RUNNING, wanted=(), holds=way, began=self.began[number])

    def _end(self, number: int, now: float) -> None:
        task, began = self.tasks[number], self.began[number]
        self.running.remove(number)
        self.runs[task.owner].append(now - began)
        before, at = self.used.get((task.share, task.owner), (0.0, now))
        used = fade(before, now - at) + task.chips * (now - began)
        self.used[task.share, task.owner] = used, now

    def _plan(self, now: float) -> QueuePlan:
        lengths = {
            (owner, "train"): sorted(runs)[math.ceil(0.9 * len(runs)) - 1]
            for owner, runs in self.runs.items()
        }
        parts = [(*of, fade(used, now - at)) for of, (used, at) in self.used.items()]
        for number in self.running:
            task = self.tasks[number]
            least = charged(task.time, usual(lengths, task.owner, "", "train"))
            seconds = max(now - self.began[number], least)
            parts.append((task.share, task.owner, task.chips * seconds))
        entries = (*self.waiting.values(), *map(self._holds, self.running))
        return plan(entries, self.settings, {}, sums(parts, lengths), now, NoOthers())


def two_weeks(seed: int, time: Callable[[float, Random], float]) -> Lab:
    random, of_times = Random(seed), Random(f"times {seed}")
    mean = MEDIAN * math.exp(SIGMA**2 / 2) * sum(chips * part for chips, part in SIZES.items())
    gap, now, tasks = mean * 3 / (LOAD * CHIPS), 0.0, list[Task]()
    while (now := now + random.expovariate(1 / gap)) < DAYS * DAY:
        owner = random.choice(OWNERS)
        chips = random.choices([*SIZES], [*SIZES.values()])[0]
        for _ in range(1 + int(random.expovariate(1 / 2.5))):
            seconds = min(2 * DAY, random.lognormvariate(math.log(MEDIAN), SIGMA))
            tasks.append(Task(now, owner, chips, seconds, time(seconds, of_times)))
    return Lab(tasks, QueueSettings(quota={POOL: CHIPS})).live()


def waits_by_size(label: str, time: Callable[[float, Random], float]) -> str:
    waits: defaultdict[int, list[float]] = defaultdict(list)
    for seed in range(SEEDS):
        lab = two_weeks(seed, time)
        for number, began in lab.began.items():
            task = lab.tasks[number]
            waits[task.chips].append((began - task.at) / MINUTE)
    mean = statistics.mean(wait for row in waits.values() for wait in row)
    sizes = ", ".join(f"{chips}: {statistics.mean(waits[chips]):.0f}" for chips in SIZES)
    return (
        f"{label}: mean wait {mean:.0f} min (by chips {sizes}; longest of 64 {max(waits[64]):.0f})"
    )


def parts(label: str, eve: Callable[[Task, int], Task]) -> str:
    """Return the part of the chips that each owner has had in the first hour."""
    tasks = [Task(0.0, owner, 4, 10 * MINUTE - START) for _ in range(40) for owner in OWNERS]
    tasks = [eve(task, n) if task.owner == "eve" else task for n, task in enumerate(tasks)]
    weights = {"vision": 1.0, "speech": 1.0}
    lab = Lab(tasks, QueueSettings(weights, quota={POOL: 24}), 60 * MINUTE - 1).live()
    got = Counter(lab.tasks[number].owner for number in lab.began)
    return f"{label}: " + ", ".join(f"{owner} {got[owner] / got.total():.0%}" for owner in OWNERS)


def behind_a_refused_one(trial: int) -> float:
    """Return the seconds for which a job of 4 chips waits behind one of 32 that is refused again and again."""
    known: dict[str, Circuit] = {}
    small_at, now, refusals, wake = 3600.0 + 37 * trial, 0.0, 0, 0.0
    big = QueueEntry("000001", 1, "zed", State.QUEUED, 0.0, 0.0, wanted=(wanted(32),), rate=1.0)
    small = replace(
        big, id="000002", number=2, owner="ada", since=small_at, waiting_since=small_at,
        wanted=(wanted(4),),
    )  # fmt: skip
    usage = RecentUsage({("", "ada"): 5e6}, {"": 5e6})
    for k in itertools.count(1):
        jobs = [replace(big, refusals=refusals, wake=wake), *([small] if now >= small_at else [])]
        made = plan(jobs, QueueSettings(), known, usage, now, NoOthers())
        if (place := made.places.get(small.id)) and place.ask:
            return now - small_at
        if made.places[big.id].ask:
            asked = Slice(f"s{k}", k, "v4-64", "us-central2-b", "spot", "cloud-tpu", "", None, now)
            known = circuits.asked(known, asked, now)
            gone = replace(asked, refused=Cause.QUOTA, refused_scope="zone", gone_at=now + 1)
            known, refusals = circuits.refused(known, gone, now + 1), refusals + 1
            policy = retry.POLICIES[Cause.QUOTA]
            wake = now + 1 + retry.backoff(policy, refusals - 1, seed=f"{trial}:{refusals}")
        times = (wake, small_at, *(circuit.until for circuit in known.values()))
        now = min((at for at in times if at > now), default=now + 5)
    raise AssertionError


def lines() -> Iterable[str]:
    yield waits_by_size("time is right", lambda seconds, _: seconds)
    yield waits_by_size("time is up to 5 x too long", lambda seconds, r: seconds * r.uniform(1, 5))
    yield waits_by_size("time is not stated", lambda seconds, _: 0.0)
    yield parts("five owners", lambda task, n: task)
    yield parts("eve writes `time: 1s`", lambda task, n: replace(task, time=1.0))
    shares = ("", "vision", "speech")
    yield parts("eve names three shares", lambda task, n: replace(task, share=shares[n // 5 % 3]))
    waits = sorted(behind_a_refused_one(trial) / MINUTE for trial in range(40))
    yield f"4 chips behind 32 that are never given: median {waits[20]:.1f} min, p90 {waits[36]:.1f}"


def main() -> None:
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
