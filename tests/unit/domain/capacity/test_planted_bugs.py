"""The plan of random labs against a slow one, rule by rule; planted bugs show that a broken rule is seen."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf
from random import Random
from typing import Any
from unittest import mock

import pytest

from tests.support.simulation.queue_rules import Planned, every, expected_end, expected_length
from tests.unit.domain.capacity.test_plan import BIG, NOW, SMALL, World, holds, waits, wanted
from tpujob.domain.capacity import dependencies, giving_way
from tpujob.domain.capacity.dependencies import JobEnd
from tpujob.domain.capacity.entries import QueueEntry, Wanted
from tpujob.domain.capacity.planning import (
    AGED,
    FREE_PASS,
    LAPSES,
    PASSED,
    REQUESTS,
    UNPASSED,
    QueuePlan,
    plan,
)
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.capacity.usage import RecentUsage
from tpujob.domain.model import Cause, Edge, State
from tpujob.domain.observations import Circuit, Place

plans: Any = import_module("tpujob.domain.capacity.planning")
LABS = 400
ENDS = {
    "000901": JobEnd(State.SUCCEEDED, NOW - 50, NOW - 40),
    "000902": JobEnd(State.FAILED, NOW - 50, NOW - 40),
    "000903": JobEnd(State.RUNNING, NOW - 50),
}
EAST = wanted(8, "us-east1-d")


@dataclass
class Lab:
    jobs: list[QueueEntry]
    settings: QueueSettings
    circuits: dict[str, Circuit]
    usage: RecentUsage
    world: World

    def plan(self) -> QueuePlan:
        return plan(self.jobs, self.settings, self.circuits, self.usage, NOW, self.world)


def lab(seed: int) -> Lab:
    random, of_slices = Random(seed), Random(f"slices {seed}")
    of_runtimes, of_times = Random(f"runtimes {seed}"), Random(f"times {seed}")
    pick = random.choice
    jobs: list[QueueEntry] = []
    for number in range(1, random.randint(4, 16)):
        group = pick(["", "", "000801"])
        common = {"owner": pick("abc"), "share": pick("xy"), "group": group}
        common["share"] = of_times.choice([common["share"], common["share"], "z"])
        if random.random() < 0.35:
            slice = pick([SMALL, BIG, EAST])
            if of_slices.random() < 0.3:
                until, epoch = of_slices.choice([-1, 30]), of_slices.choice([0, PASSED])
                common |= {"gives_until": NOW + until, "epoch": epoch, "leaves": NOW + 20}
            common |= {"began": NOW - of_times.choice([60.0, 5000.0, 40_000.0])}
            jobs.append(holds(number, slice, in_cloud_queue=random.random() < 0.7, **common))
            continue
        since = NOW - pick([10.0, 400.0, FREE_PASS + 5, FREE_PASS + 9000, AGED + 5])
        entry = waits(
            number,
            *pick([(SMALL,), (BIG,), (SMALL, EAST), (EAST, BIG)]),
            band=random.randint(0, 2),
            rank=pick([0, 0, 1]),
            since=since,
            waiting_since=max(since, NOW - pick([5.0, 2 * AGED + 5])),
            rate=pick([0.0, 1e6, 3e6]),
            time=of_times.choice([0.0, 1.0, 900.0, 7200.0]),
            program=of_times.choice(["lm", "mlp"]),
            refusals=pick([0, 0, LAPSES]),
            wake=pick([0.0, 0.0, 0.0, NOW + 30]),
            held_by=pick(["", "", "", "ada"]),
            not_before=pick([None, None, NOW - 3, NOW + 60]),
            hand_on=of_slices.random() < 0.8,
            acted_at=of_slices.choice([0.0, 0.0, since]),
            edges=pick([(), (), (), *((Edge(job, "success"),) for job in ENDS)]),
            **common,
        )
        if of_runtimes.random() < 0.1:
            entry = replace(entry, wanted=tuple(map(of_another_runtime, entry.wanted)))
        jobs.append(entry)
    limits = OwnerLimits(running=pick([None, 2, 4]), chips=pick([None, 72]))
    circuits = {
        name: Circuit(name, Cause.STOCKOUT, 1, NOW - 60, NOW + pick([-1, 90]))
        for name in (SMALL.shape, BIG.shape, EAST.shape)
        if random.random() < 0.4
    }
    of_sizes = Random(f"sizes {seed}")
    for chips in (8, 64):
        if of_sizes.random() < 0.3:
            until = NOW + of_sizes.choice([-1, 90])
            circuits[f"{SMALL.pool}/{chips}"] = Circuit(
                SMALL.pool, Cause.QUOTA, 1, NOW - 60, until, chips=chips
            )
    if of_sizes.random() < 0.2:
        at, limit = NOW - of_sizes.choice([5.0, 500.0]), of_sizes.choice([0, 48, 64])
        circuits["limit"] = Circuit(
            SMALL.pool, Cause.QUOTA, 1, at, at + 900, at, chips=limit + 1, limit=limit
        )
    usage = {(share, owner): pick([0.0, 2e6]) for share in "xyz" for owner in "abc"}
    shares = {s: sum(n for (share, _), n in usage.items() if share == s) for s in "xyz"}
    return Lab(
        jobs,
        QueueSettings(
            {"x": 2.0, "z": 1.0},
            limits,
            {SMALL.type: OwnerLimits(running=2)},
            quota={SMALL.pool: of_times.choice([64, 72, 96])},
            members=of_times.choice([{}, {"x": frozenset("ab")}, {"x": set(), "z": set()}]),
            hand_on=Random(f"hand on {seed}").choice(["owner", "owner", "lab", "never"]),
        ),
        circuits,
        RecentUsage(usage, shares, {("a", "lm"): 60.0, ("b", "lm"): 9000.0}),
        World(ends=ENDS, groups={"000801": ("sweep", 3)}),
    )


def crowd(seed: int) -> Lab:
    """A lab where the quota is used up, and one who needs much of it has waited long."""
    random = Random(f"crowd {seed}")
    pick, sizes = random.choice, [*map(wanted, (8, 16, 32, 64))]
    quota = pick([64, 80, 96])
    jobs: list[QueueEntry] = []
    left = quota
    while left >= 24 and random.random() < 0.9:
        slice = pick([s for s in sizes[:3] if s.chips <= left - 16])
        left -= slice.chips
        began = NOW - pick([60.0, 2000.0, 5000.0])
        leaves = pick([0.0, 0.0, 0.0, NOW + 20])
        gives = {"gives_until": NOW + 30} if leaves else {}
        job = holds(len(jobs) + 1, slice, began=began, owner=pick("ab"), leaves=leaves, **gives)
        jobs.append(replace(job, time=pick([600.0, 3600.0, 7200.0])))
    for number in range(20, 20 + random.randint(4, 10)):
        since = NOW - pick([60.0, FREE_PASS + 5, UNPASSED + 5])
        times = {
            "since": since,
            "waiting_since": since,
            "time": pick([1.0, 1800.0, 9000.0, 20_000.0]),
        }
        jobs.append(waits(number, pick([sizes[0], *sizes]), owner=pick("ab"), **times))
    settings = QueueSettings(quota={SMALL.pool: quota}, hand_on=pick(["owner", "lab"]))
    return Lab(jobs, settings, {}, RecentUsage(), World())


def low_ones(seed: int) -> Lab:
    """A lab whose quota is used up by jobs of several priorities, some of which are about to leave."""
    random = Random(f"low ones {seed}")
    pick, sizes = random.choice, [*map(wanted, (8, 16, 32, 64))]
    jobs: list[QueueEntry] = []
    for number in range(1, random.randint(3, 8)):
        ran = pick([60.0, 2000.0, 5000.0])
        job = holds(
            number, pick(sizes[:3]), began=NOW - ran, band=pick([1, 2, 2]), owner=pick("ab")
        )
        if job.band == 2 and ran > 1200:
            job = replace(job, runs_since=NOW - ran, gives_way_at=NOW - pick([-50.0, 1.0]))
        if random.random() < 0.15:
            to = pick(["000020", "000021"])
            job = replace(job, state=State.HOLDING, leaves=NOW + 60, gives_way_to=to)
            job = replace(job, gives_way_at=inf)
        jobs.append(job)
    quota = sum(job.holds.chips for job in jobs if job.holds) + pick([0, 8, 16])
    for number in range(20, 20 + random.randint(1, 6)):
        since = NOW - pick([60.0, 60.0, 900.0, FREE_PASS + 5, AGED + 5])
        times = {"since": since, "waiting_since": since, "wake": pick([0.0] * 5 + [NOW + 30])}
        more = {
            "refusals": pick([0] * 5 + [LAPSES]),
            "owner": pick("ab"),
            "time": pick([60.0, 9000.0]),
        }
        jobs.append(waits(number, pick(sizes), band=random.randint(0, 2), **times, **more))
    settings = QueueSettings(quota={SMALL.pool: quota}, give_way=random.random() < 0.9)
    return Lab(jobs, settings, {}, RecentUsage(), World())


# The rules, one by one ------------------------------------------------------------------------------------------------


def since_of(entry: QueueEntry) -> float:
    times = [ENDS[e.job].finished_at or 0.0 for e in entry.edges]
    return max(entry.since, entry.not_before or 0.0, *times, 0.0)


def slow_order(case: Lab) -> list[str]:
    """Return the order by its definition: each step compares all jobs that are left."""
    settings, lengths = case.settings, case.usage.lengths
    closed = {*settings.members}
    weight_of_open = 1.0 + sum(w for s, w in settings.weights.items() if s not in closed)

    def account(share: str) -> str:
        return share if share in closed else "all open ones"

    def weight(share: str) -> float:
        return settings.weights.get(share, 1.0) if share in closed else weight_of_open

    def own(share: str) -> float:
        return 1.0 if share in closed else settings.weights.get(share, 1.0)

    def charge(entry: QueueEntry) -> float:
        usual = lengths.get((entry.owner, entry.program), 3600.0)
        return entry.rate * max(entry.time, usual, 600.0)

    accounts, owners = Counter[str](), Counter[str]()
    for share, used in case.usage.shares.items():
        accounts[account(share)] += used / weight(share)  # type: ignore[assignment]
    for (share, owner), used in case.usage.owners.items():
        owners[owner] += used / own(share)  # type: ignore[assignment]
    waiting = [
        job
        for job in case.jobs
        if job.waits
        and not job.held_by
        and (job.not_before is None or job.not_before <= NOW)
        and all(ENDS[e.job].state is State.SUCCEEDED for e in job.edges)
    ]

    def band(entry: QueueEntry) -> int:
        waited = NOW - max(since_of(entry), entry.waiting_since)
        return max(0, entry.band - (waited >= AGED))

    order: list[str] = []
    while waiting:
        best = [job for job in waiting if band(job) == min(map(band, waiting))]

        def head(name: str, owner: str, among: list[QueueEntry] = best) -> QueueEntry:
            own = [job for job in among if (account(job.share), job.owner) == (name, owner)]
            return min(own, key=lambda job: (-job.rank, since_of(job), job.number))

        def next_owner(name: str, among: list[QueueEntry] = best) -> str:
            names = {job.owner for job in among if account(job.share) == name}
            return min(names, key=lambda o: (owners[o], head(name, o).number))

        def place(name: str) -> tuple[float, str]:
            return accounts[name], name if name in closed else ""

        name = min({account(job.share) for job in best}, key=place)
        first = head(name, next_owner(name))
        order.append(first.id)
        waiting.remove(first)
        accounts[name] += charge(first) / weight(first.share)  # type: ignore[assignment]
        owners[first.owner] += charge(first) / own(first.share)  # type: ignore[assignment]
    return order


def faults(case: Lab, plan: QueuePlan) -> Iterator[str]:
    """Every rule that the plan breaks."""
    if list(plan.order) != slow_order(case):
        yield "the order"
    arguments = (tuple(case.jobs), case.settings, case.circuits, case.usage, NOW, case.world, plan)
    yield from (f"{broken.rule}: {broken.text}" for broken in every(Planned(*arguments)))
    waiting = {entry.id: entry for entry in case.jobs if entry.waits}
    started = [waiting[job_id] for job_id in plan.order if plan.places[job_id].ask]
    for circuit in case.circuits.values():
        least = 1_000_000
        for entry in started:
            asked = [w.chips for w in entry.wanted if _concerns(circuit, w, plan.places[entry.id])]
            if asked and max(asked) >= least:
                yield "a circuit that is half open"
            least = min([least, *asked])
    for slice in (SMALL, BIG, EAST):
        queued = sum(bool(entry.in_cloud_queue and entry.holds == slice) for entry in case.jobs)
        if queued >= REQUESTS and any(slice.shape in plan.places[o.id].ask for o in started):
            yield "the requests in the cloud's queue"
    yield from _handed_on(case, plan, waiting, Planned(*arguments))


def _concerns(circuit: Circuit, slice: Wanted, place: Place) -> bool:
    mine = circuit.pool in slice.circuits and circuit.chips <= slice.chips
    return mine and slice.shape in place.ask


def _handed_on(
    case: Lab, plan: QueuePlan, waiting: dict[str, QueueEntry], planned: Planned
) -> Iterator[str]:
    """Each slice goes to the first job that may have it; within owners, unless it has passed jobs of others often
    enough."""
    mode = case.settings.hand_on
    free = [entry for entry in case.jobs if entry.gives_until > NOW and mode != "never"]
    used = [(entry.owner, entry.holds) for entry in case.jobs if entry.holds]
    members = Counter(entry.group for entry in case.jobs if entry.holds)
    takes = {heir: giver for giver, heir in plan.heirs.items()}
    ends = [
        (expected_end(planned, entry), entry.holds.chips)
        for entry in case.jobs
        if entry.holds and entry.holds.pool == SMALL.pool
    ]
    kept: tuple[float, int] | None = (
        None  # when enough chips are free for another job, and what is left of them
    )
    for job_id in plan.order:
        entry, place = waiting[job_id], plan.places[job_id]
        end = NOW + expected_length(planned, entry)
        full = entry.group and members[entry.group] >= 3
        first = next(
            (
                giver
                for giver in sorted(free, key=lambda giver: giver.owner != entry.owner)
                if (
                    giver.owner == entry.owner
                    or (mode == "lab" and _room(case, used, entry, giver))
                )
                and entry.hand_on
                and giver.holds in entry.wanted
                and not (
                    kept
                    and giver.holds.pool == SMALL.pool
                    and kept[0] < end
                    and kept[1] < giver.holds.chips
                )
                and (giver.group == entry.group or not full)
            ),
            None,
        )
        if takes.get(job_id) != (first and first.slice):
            yield "the first job that a slice fits"
        if first:
            free.remove(first)
            assert first.holds
            if first.holds.pool == SMALL.pool:
                ends.remove((expected_end(planned, first), first.holds.chips))
                ends.append((end, first.holds.chips))
                if kept and kept[0] < end:
                    kept = kept[0], kept[1] - first.holds.chips
            if first.owner != entry.owner:
                used.append((entry.owner, first.holds))
                members[entry.group] += 1
            continue
        members[entry.group] += bool(place.ask)
        for slice in [w for w in entry.wanted if w.shape in place.ask][:1]:
            used.append((entry.owner, slice))
            if slice.pool == SMALL.pool:
                ends.append((end, slice.chips))
                if kept and kept[0] < end:
                    kept = kept[0], kept[1] - slice.chips
        waited = NOW - max(since_of(entry), entry.waiting_since)
        short = any(r.kind == "quota" and r.what == SMALL.pool for r in place.reasons)
        if not kept and short and waited >= FREE_PASS and entry.refusals < LAPSES:
            needed = next(w.chips for w in entry.wanted if w.pool == SMALL.pool)
            quota = case.settings.quota[SMALL.pool]

            def left(at: float, quota: int = quota) -> int:
                return quota - sum(chips for end, chips in ends if end > at)

            if start := next((at for at, _ in sorted(ends) if left(at) >= needed), None):
                kept = start, left(start) - needed
            if kept and waited >= UNPASSED:
                kept = 0.0, -1
        if mode == "owner" and (entry.refusals or not place.ask):
            names = {name for slice in entry.wanted for name in slice.circuits}
            free = [
                giver
                for giver in free
                if giver.epoch < PASSED
                or giver.owner == entry.owner
                or not (giver.holds and names.intersection(giver.holds.circuits))
            ]


def _room(case: Lab, used: list[tuple[str, Wanted]], entry: QueueEntry, giver: QueueEntry) -> bool:
    """Whether the limits of its owner leave room for the slice of another one."""
    held = giver.holds
    assert held is not None
    for type, limits in (("", case.settings.limits), *case.settings.by_type.items()):
        own = [w for owner, w in used if owner == entry.owner and type in ("", w.type)]
        if type in ("", held.type) and (
            (limits.running is not None and len(own) >= limits.running)
            or (limits.chips is not None and sum(w.chips for w in own) + held.chips > limits.chips)
        ):
            return False
    return True


def of_another_runtime(slice: Wanted) -> Wanted:
    return replace(slice, system_image="tpu-ubuntu2204-base")


def found_in(labs: range) -> set[str]:
    cases = (*map(lab, labs), *map(crowd, labs[:250]), *map(low_ones, labs[:250]))
    return {fault for case in cases for fault in faults(case, case.plan())}


def test_the_plan_of_random_labs_keeps_every_rule() -> None:
    assert found_in(range(LABS)) == set()


# Planted bugs --------------------------------------------------------------------------------------------------------

Patch = AbstractContextManager[Any]


def fair(change: Callable[..., Any]) -> Patch:
    """`_fair` of the plan, with other arguments."""
    real = plans._fair
    return mock.patch.object(plans, "_fair", lambda *arguments: real(*change(*arguments)))


def walk(name: str, planted: Callable[..., Any]) -> Patch:
    real = getattr(plans._Walk, name)
    return mock.patch.object(
        plans._Walk, name, lambda self, *arguments: planted(real, self, *arguments)
    )


def _uncharged(level: int, queues: Any, *rest: Any) -> Any:
    for jobs in queues.values():
        jobs[:] = [(*key, replace(entry, rate=0.0)) for *key, entry in jobs]
    return level, queues, *rest


def _by_share(level: int, queues: Any, accounts: Any, owners: Any, *rest: Any) -> Any:
    return level, queues, accounts, Counter(), *rest


def _with_members(ready: Any, settings: QueueSettings, *rest: Any) -> Any:
    return _real_ordered(ready, replace(settings, members=dict.fromkeys("xyz", "")), *rest)


def _without_weights(ready: Any, settings: QueueSettings, *rest: Any) -> Any:
    return _real_ordered(ready, replace(settings, weights={}), *rest)


def _unranked(level: int, queues: Any, *others: Any) -> Any:
    for jobs in queues.values():
        jobs[:] = [(0, *rest) for _, *rest in jobs]
    return level, queues, *others


def _no_new_ones(real: Any, self: Any, entry: QueueEntry, *rest: Any) -> None:
    if entry.holds is not None:
        real(self, entry, *rest)


def _without_limits(real: Any, self: Any, entry: QueueEntry, *rest: Any) -> Any:
    other = replace_walk(self, replace(self.settings, limits=OwnerLimits(), by_type={}))
    return real(other, entry, *rest)


def _fits_in_shape(entry: QueueEntry, giver: QueueEntry) -> bool:
    return entry.hand_on and any(giver.holds and w.shape == giver.holds.shape for w in entry.wanted)


def _gives(entry: QueueEntry, until: float) -> QueueEntry:
    return replace(entry, gives_until=until) if entry.gives_until else entry


def _held_ones_age(entry: QueueEntry, now: float, others: Any) -> Any:
    place, _ = _real_eligible(entry, now, others)
    return place, entry.since


def _edge_waits(edge: Edge, other: JobEnd | None) -> Any:
    state, at = dependencies.check_edge(edge, other)
    return (dependencies.Met.NOT_YET if state is dependencies.Met.NEVER else state), at


def _all_through(real: Any, self: Any, entry: QueueEntry, waited: float) -> Any:
    answer = real(self, entry, waited)
    self.asking.clear()
    return answer


def _any_size(real: Any, self: Any, way: Wanted) -> Any:
    """Let every refusal of a quota concern slices of any size."""
    every = [c for c in self.circuits.values() if c.pool in way.circuits and c.limit is None]
    return [*real(self, way), *every]


def _to_any_band(real: Any, self: Any, entry: QueueEntry, lacks: Any) -> Any:
    return real(self, replace(entry, band=0), lacks)


def _to_every_job(real: Any, self: Any, entry: QueueEntry, lacks: Any) -> Any:
    self.headed.clear()
    return real(self, entry, lacks)


def _kept_later(real: Any, self: Any, *arguments: Any) -> Any:
    return real(self, *arguments[:-1], None)


_real_eligible, _real_ordered = plans._eligible, plans._ordered
BUGS: dict[str, tuple[Callable[[], Patch], str]] = {
    "an owner's use in other shares is forgotten": (lambda: fair(_by_share), "the order"),
    "a share without members is a lab of its own": (
        lambda: mock.patch.object(plans, "_ordered", _with_members),
        "the order",
    ),
    "a short time in the file is cheap": (
        lambda: mock.patch.object(plans, "charged", lambda stated, usual: stated or 3600.0),
        "the order",
    ),
    "usage is not charged at assignment": (lambda: fair(_uncharged), "the order"),
    "weights are ignored": (
        lambda: mock.patch.object(plans, "_ordered", _without_weights),
        "the order",
    ),
    "no job is raised": (lambda: mock.patch.object(plans, "AGED", 1e12), "the order"),
    "the rank is ignored": (lambda: fair(_unranked), "the order"),
    "age grows while a job cannot start": (
        lambda: mock.patch.object(plans, "_eligible", _held_ones_age),
        "the order",
    ),
    "a failed edge waits": (
        lambda: mock.patch.object(plans, "check_edge", _edge_waits),
        "waits for",
    ),
    "limits do not count what is assigned in the same plan": (
        lambda: walk("_take", _no_new_ones),
        "its owner runs",
    ),
    "limits of a type are ignored": (
        lambda: walk(
            "_over_limit",
            lambda real, self, one, slice: real(
                replace_walk(self, replace(self.settings, by_type={})), one, slice
            ),
        ),
        "its owner runs",
    ),
    "a group has no limit": (
        lambda: walk("_group_full", lambda real, self, one: None),
        "of its group run",
    ),
    "the quota is ignored": (
        lambda: walk("_over_quota", lambda real, self, way: None),
        "chips of us-central2-b/v4/spot are in use",
    ),
    "an open circuit is ignored": (
        lambda: walk("_refused", lambda real, self, slice: None),
        ", refused for",
    ),
    "a refusal concerns smaller slices, too": (
        lambda: walk("_about", _any_size),
        "which does not hold",
    ),
    "what exceeds a quota is requested": (
        lambda: walk("_too_big", lambda real, self, *given: None),
        ", of a quota of",
    ),
    "a limit holds after a person has asked again": (
        lambda: walk(
            "_too_big", lambda real, self, one, way: real(self, replace(one, acted_at=0.0), way)
        ),
        "which does not hold",
    ),
    "a half-open circuit lets all through": (
        lambda: walk("place", _all_through),
        "a circuit that is half open",
    ),
    "the cloud's queue is as long as it may be": (
        lambda: mock.patch.object(plans, "REQUESTS", 99),
        "the requests in the cloud's queue",
    ),
    "a slice passes jobs of others for ever": (
        lambda: mock.patch.object(plans, "PASSED", 99),
        "the first job that a slice fits",
    ),
    "a slice is handed on for ever": (
        lambda: walk(
            "count", lambda real, self, one, slice: real(self, _gives(one, NOW + 30), slice)
        ),
        "the first job that a slice fits",
    ),
    "an owner at the limit gets the slice of another": (
        lambda: walk("_giver", _without_limits),
        "the first job that a slice fits",
    ),
    "a slice goes to a job that it does not fit": (
        lambda: walk("_may_get", lambda real, self, one, giver: True),
        "the first job that a slice fits",
    ),
    "a slice goes to a job that wants another runtime version": (
        lambda: mock.patch.object(QueueEntry, "fits", _fits_in_shape),
        "the first job that a slice fits",
    ),
    "all pass a big one": (
        lambda: walk("_would_delay", lambda real, self, *given: None),
        ": passes ",
    ),
    "who leaves too few chips passes": (
        lambda: mock.patch.object(plans._Kept, "passed", return_value=None),
        ": passes ",
    ),
    "the first job is passed for ever": (
        lambda: mock.patch.object(plans, "UNPASSED", 1e12),
        "which has waited for two days",
    ),
    "nobody passes a big one": (
        lambda: mock.patch.object(plans._Kept, "lets_pass", return_value=False),
        "which does not hold",
    ),
    "who is late is gone at once": (
        lambda: mock.patch.object(plans, "free_at", lambda entry, lengths, now: now + 60),
        "which does not hold",
    ),
    "jobs of low priority give way to each other": (
        lambda: walk("_clear_way", _to_any_band),
        "give way to it, of band 2",
    ),
    "jobs give way to one that is not the first": (
        lambda: walk("_clear_way", _to_every_job),
        ", which is given way",
    ),
    "all give way": (
        lambda: mock.patch.object(giving_way, "choose", lambda chips, holders: [*holders]),
        "more than necessary",
    ),
    "some give way although they are not enough": (
        lambda: mock.patch.object(giving_way, "choose", lambda chips, holders: [*holders][:1]),
        "give way in vain",
    ),
    "one who leaves still holds its chips": (
        lambda: walk("_leaves", lambda real, self, holder: False),
        "more than necessary",
    ),
    "chips that were given up are kept later": (
        lambda: walk("_keep_quota", _kept_later),
        ": passes ",
    ),
    "nothing is kept": (
        lambda: mock.patch.object(plans, "FREE_PASS", 1e12),
        ": passes ",
    ),
}


def replace_walk(walk: Any, settings: QueueSettings) -> Any:
    other = object.__new__(plans._Walk)
    for name in plans._Walk.__slots__:  # type: ignore[attr-defined]
        setattr(other, name, getattr(walk, name))
    other.settings = settings
    return other


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name: str) -> None:
    plant, rule = BUGS[name]
    with plant():
        seen = found_in(range(LABS))
    assert any(rule in fault for fault in seen), f"{name}: no lab of {LABS} shows it"
