"""The rules for each plan of the queue, and for each slice that a job gets: pure checks over records and plans.

Q2, Q8, Q9, Q14: rules of `domain/capacity/`, by the promises of its documentation, not by its code.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tpujob.domain.capacity.dependencies import Met
from tpujob.domain.capacity.dependencies import check_edge as check
from tpujob.domain.capacity.entries import QueueEntry, Wanted
from tpujob.domain.capacity.planning import (
    AGED,
    FREE_PASS,
    LAPSES,
    REQUESTS,
    UNPASSED,
    Others,
    QueuePlan,
)
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.usage import RecentUsage
from tpujob.domain.invariants import Broken
from tpujob.domain.model import State
from tpujob.domain.observations import Circuit, Place, Reason, ReasonKind

_K = ReasonKind


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, and its inputs."""

    entries: tuple[QueueEntry, ...]
    settings: QueueSettings
    circuits: Mapping[str, Circuit]
    usage: RecentUsage
    now: float
    others: Others
    plan: QueuePlan

    def of(self, job_id: str) -> QueueEntry | None:
        return next((entry for entry in self.entries if entry.id == job_id), None)


def every(planned: Planned) -> Iterator[Broken]:
    yield from _places(planned)
    yield from _order(planned)
    yield from _Walk(planned).check()


# What a job waits for beside slices -----------------------------------------------------------------------------------


def _places(planned: Planned) -> Iterator[Broken]:
    """Q14: each job that waits has a place, and a reason where it may request nothing; each such reason is true."""
    for entry in planned.entries:
        place = planned.plan.places.get(entry.id)
        if not entry.waits:
            if place is not None:
                yield Broken("Q14", entry.id, f"has a place in the queue while it is {entry.state}")
            continue
        if place is None:
            yield Broken("Q14", entry.id, "waits and has no place in the queue")
            continue
        if not (place.ask or place.reasons or place.broken):
            yield Broken("Q14", entry.id, f"waits at position {place.position} for no reason")
        if (entry.id in planned.plan.order) != (place.position > 0):
            yield Broken("Q14", entry.id, f"is at position {place.position} and not in the order")
        barred = [*_barred(entry, planned)]
        if place.position and barred:
            yield Broken("Q14", entry.id, f"is in the order, and {barred[0]}")
        if not place.position:
            if not barred:
                yield Broken("Q14", entry.id, f"is kept out of the order by {place.reasons[:1]}")
            for reason in place.reasons:
                if not _is_barred_by(entry, reason, planned):
                    yield Broken("Q14", entry.id, f"waits for {reason}, which does not hold")


def _barred(entry: QueueEntry, planned: Planned) -> Iterator[str]:
    if entry.held_by:
        yield f"it is held by {entry.held_by}"
    if entry.not_before is not None and planned.now < entry.not_before:
        yield f"it may not start for {entry.not_before - planned.now:.0f} s"
    for job_id, on, state in met_edges(entry, planned.others):
        if state is not Met.YES:
            yield f"it waits for the {on} of {job_id}"


def met_edges(entry: QueueEntry, others: Others) -> Iterator[tuple[str, str, Met]]:
    """Yield each job that the entry waits for, the condition, and whether the condition is met."""
    for edge in entry.edges:
        by_element = edge.each and entry.index is not None
        other = others.element(edge.job, entry.index or 0) if by_element else edge.job
        end = others.end(edge.job if other is None else other)
        if other is None and end is not None:  # not made yet, or never if its group has ended
            end = replace(end, started=None)
        state = check(edge, end)[0]
        yield other or edge.job, edge.on, state


def _is_barred_by(entry: QueueEntry, reason: Reason, planned: Planned) -> bool:
    match reason.kind:
        case _K.HELD:
            return bool(entry.held_by)
        case _K.NOT_BEFORE:
            return entry.not_before is not None and planned.now < entry.not_before == reason.until
        case _K.DEPENDENCY:
            waits = {
                job for job, on, state in met_edges(entry, planned.others) if state is Met.NOT_YET
            }
            return bool(reason.jobs) and {*reason.jobs} <= waits
        case _:
            return False


# The order ------------------------------------------------------------------------------------------------------------


def _order(planned: Planned) -> Iterator[Broken]:
    """Q2: jobs are ordered by band, then by the usage of share and owner, then by rank, age and id."""
    by_id = {entry.id: entry for entry in planned.entries}
    rows = [
        (by_id[job_id], planned.plan.places[job_id])
        for job_id in planned.plan.order
        if job_id in by_id
    ]
    if [place.position for _, place in rows] != [*range(1, len(rows) + 1)]:
        yield Broken("Q2", "", f"positions are {[place.position for _, place in rows]}")
    for entry, place in rows:
        if place.order is None:
            yield Broken("Q2", entry.id, "is in the order, and nothing says where from")
            return
        waited = planned.now - max(place.order.since, entry.waiting_since)
        band = max(0, entry.band - (waited >= AGED))
        if place.order.band != band:
            text = f"counts as of band {place.order.band} after {waited:.0f} s in band {entry.band}"
            yield Broken("Q2", entry.id, text)
    for (a, first), (b, second) in pairwise(rows):
        if _level(first) > _level(second):
            yield Broken("Q2", b.id, f"comes after {a.id}, which is of a lower band")
        elif _level(first) == _level(second) and _share(first) > _share(second) + 1:
            text = f"comes after {a.id}, whose share has used more: {first.order}, {second.order}"
            yield Broken("Q2", b.id, text)
    used = _used_by_owner(planned)
    for entry, place in rows:
        if place.order and place.order.owner_used < used[entry.owner] - 1:
            text = f"counts ${place.order.owner_used / 1e6:.3f} for its owner, of ${used[entry.owner] / 1e6:.3f}"
            yield Broken("Q2", entry.id, text)
    queues: defaultdict[tuple[int, str, str], list[tuple[QueueEntry, Place]]] = defaultdict(list)
    for entry, place in rows:
        queues[_level(place), entry.share, entry.owner].append((entry, place))
    for queue in queues.values():
        for (a, first), (b, second) in pairwise(queue):
            if _within(a, first) > _within(b, second):
                text = f"comes after {a.id} of the same owner: {first.order}, {second.order}"
                yield Broken("Q2", b.id, text)


def _used_by_owner(planned: Planned) -> Mapping[str, float]:
    """Return the use of each owner in all shares; in one that is open to all users, for its weight."""
    settings, used = planned.settings, defaultdict[str, float](float)
    for (share, owner), amount in planned.usage.owners.items():
        is_open = share not in settings.members
        used[owner] += amount / (settings.weights.get(share, 1.0) if is_open else 1.0)
    return used


def _level(place: Place) -> int:
    return place.order.band if place.order else 0


def _share(place: Place) -> float:
    return place.order.share_used if place.order else 0.0


def _within(entry: QueueEntry, place: Place) -> tuple[int, float, int]:
    return -entry.rank, place.order.since if place.order else 0.0, entry.number


# The walk -------------------------------------------------------------------------------------------------------------


@dataclass
class _Walk:
    """A walk through the jobs in order, with the holdings and requests of the jobs before."""

    planned: Planned
    running: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    chips: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    pools: Counter[str] = field(default_factory=Counter[str])
    groups: Counter[str] = field(default_factory=Counter[str])
    requested: Counter[str] = field(default_factory=Counter[str])
    #: the job that may not request a shape, and for what chips at least
    closed: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    #: until when the chips of each pool are held, or taken by jobs before
    ends: defaultdict[str, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list[tuple[float, int]])
    )
    #: the job that chips of a pool are kept for, and when enough are free
    kept: dict[str, tuple[QueueEntry, float]] = field(
        default_factory=dict[str, tuple[QueueEntry, float]]
    )
    before: list[QueueEntry] = field(default_factory=list[QueueEntry])

    def check(self) -> Iterator[Broken]:
        by_id = {job.id: job for job in self.planned.entries}
        for job in self.planned.entries:
            if job.holds:
                self._take(job, job.holds)
                self.ends[job.holds.pool].append((expected_end(self.planned, job), job.holds.chips))
                self.requested[job.holds.shape] += job.in_cloud_queue
            for other in job.beside:
                self._count_beside(other)
        for job_id in self.planned.plan.order:
            if (job := by_id.get(job_id)) is None:
                continue
            place = self.planned.plan.places[job_id]
            if place.ask:
                yield from self._asks(job, place)
                slice = next(w for w in job.wanted if w.shape in place.ask)
                self._take(job, slice)
                yield from self._passes(job, slice)
            elif place.reasons:
                told = [reason for reason in place.reasons if reason.kind is not _K.GIVEN_WAY]
                yield from self._given_way(job, place)
                reason = told[0]
                if job.wanted and not any(self._holds(job, w, reason) for w in job.wanted[:1]):
                    yield Broken("Q14", job.id, f"waits for {reason}, which does not hold")
                yield from self._receives(job, reason)
                if len(job.wanted) == 1:
                    self._close(job, job.wanted[0], reason)
                self._keep(job, place)
            self.before.append(job)

    def _take(self, job: QueueEntry, slice: Wanted) -> None:
        for type in ("", slice.type):
            self.running[job.owner, type] += 1
            self.chips[job.owner, type] += slice.chips
        self.pools[slice.pool] += slice.chips
        self.groups[job.group] += 1

    def _given_way(self, job: QueueEntry, place: Place) -> Iterator[Broken]:
        """Q9: as many jobs of low priority as are needed give way to the first job that waits for their chips, if they
        are enough; and its place says so."""
        plan, entries = self.planned.plan, self.planned.entries
        needed = {job_id: way.shape for job_id, way in plan.gives_way.items() if way.to == job.id}
        givers = [entry for entry in entries if entry.id in needed]
        going = {entry.id for entry in entries if entry.gives_way_to == job.id}
        said = {i for r in place.reasons if r.kind is _K.GIVEN_WAY for i in r.jobs}
        if said - needed.keys() - going or (givers and not said):
            yield Broken("Q9", job.id, f"says that {said} give way to it, not {[*needed]}")
        if not givers:
            return
        slice = next(way for way in job.wanted if way.shape in needed.values())
        ahead = {other.id for other in self.before}
        leaving = [
            entry
            for entry in entries
            if entry.holds and entry.holds.pool == slice.pool and _leaves(entry, self.planned.now)
            if plan.heirs.get(entry.slice) not in ahead  # else its slice serves on
        ]
        chips = {e.id: e.holds.chips for e in (*givers, *leaving) if e.holds}
        free = min(self._quotas(slice)) - self.pools[slice.pool] + sum(chips[e.id] for e in leaving)
        given = free + sum(chips[e.id] for e in givers)
        if given < slice.chips:
            yield Broken("Q9", job.id, f"{[*needed]} give way in vain: {given} of {slice.chips}")
        if free >= slice.chips or any(given - chips[e.id] >= slice.chips for e in givers):
            yield Broken("Q9", job.id, f"more than necessary of {[*needed]} give way to it")
        if not self.planned.settings.give_way or job.band > 1:
            yield Broken("Q9", job.id, f"{[*needed]} give way to it, of band {job.band}")
        for giver in givers:
            if giver.band != 2 or giver.gives_way_at > self.planned.now:
                yield Broken("Q9", giver.id, f"gives way to {job.id} in band {giver.band} too soon")
        for other in self.before:
            first = self.planned.plan.places[other.id]
            lacks = any(r.kind in (_K.QUOTA, _K.RETRY) for r in first.reasons)
            if lacks and not first.ask and slice.pool in {w.pool for w in other.wanted[:1]}:
                yield Broken("Q9", other.id, f"comes before {job.id}, which is given way")

    def _quotas(self, slice: Wanted) -> list[int]:
        """Return the chips of the quota, by the settings and as the cloud has named them."""
        named = [c.limit for c in self.planned.circuits.values() if c.pool == slice.pool]
        quotas = [self.planned.settings.quota.get(slice.pool), *named]
        return [quota for quota in quotas if quota is not None]

    def _count_beside(self, other: QueueEntry) -> None:
        """Count the chips of a candidate, which is no job of its own."""
        if slice := other.holds:
            for type in ("", slice.type):
                self.chips[other.owner, type] += slice.chips
            self.pools[slice.pool] += slice.chips
            self.ends[slice.pool].append((expected_end(self.planned, other), slice.chips))
            self.requested[slice.shape] += other.in_cloud_queue

    def _passes(self, job: QueueEntry, slice: Wanted) -> Iterator[Broken]:
        """Q2: who passes a job that waits for a quota does not put its start off, if it keeps to its time."""
        self.ends[slice.pool].append((self._end(job), slice.chips))
        keeper, start = self.kept.get(slice.pool, (None, 0.0))
        if keeper is None:
            return
        later = self._start(keeper, slice.pool)
        if later is None or later > start + 1e-3:
            text = f"passes {keeper.id}, which could have started in {start - self.planned.now:.0f} s, until {later}"
            yield Broken("Q2", job.id, text)
        if self._waited(keeper) >= UNPASSED:
            yield Broken("Q2", job.id, f"passes {keeper.id}, which has waited for two days")

    def _end(self, job: QueueEntry) -> float:
        return self.planned.now + expected_length(self.planned, job)

    def _waited(self, job: QueueEntry) -> float:
        order = self.planned.plan.places[job.id].order
        return self.planned.now - max(order.since if order else 0.0, job.waiting_since)

    def _start(self, job: QueueEntry, pool: str) -> float | None:
        """Return when enough chips of the pool are free for the job; None: never."""
        free = self.planned.settings.quota[pool] - sum(chips for _, chips in self.ends[pool])
        needed = next(w.chips for w in job.wanted if w.pool == pool)
        for end, chips in sorted(self.ends[pool]):
            if (free := free + chips) >= needed:
                return end
        return None

    def _receives(self, job: QueueEntry, reason: Reason) -> Iterator[Broken]:
        """Count the slice of another owner or group for both of them, but its chips once for the project."""
        for giver in _givers(self.planned) if reason.kind is _K.HANDED_ON else ():
            if self.planned.plan.heirs.get(giver.slice) != job.id or giver.holds is None:
                continue
            self.ends[giver.holds.pool].remove(
                (expected_end(self.planned, giver), giver.holds.chips)
            )
            yield from self._passes(job, giver.holds)
            if giver.lost or giver.owner != job.owner:
                self._take(job, giver.holds)
                self.pools[giver.holds.pool] -= giver.holds.chips
            elif giver.group != job.group:
                self.groups[job.group] += 1

    def _asks(self, job: QueueEntry, place: Place) -> Iterator[Broken]:
        for slice in (w for w in job.wanted if w.shape in place.ask):
            for text in self._over(job, slice):
                yield Broken("Q8", job.id, f"may request {slice.shape}, and {text}")
            other, least = self.closed.get(slice.shape, ("", 0))
            if other and slice.chips >= least:
                text = f"may request {slice.shape} before {other}, which waits for the same"
                yield Broken("Q2", job.id, text)
            for limit in self._exceeded(job, slice):
                yield Broken("Q8", job.id, f"may request {slice.shape}, of a quota of {limit}")
            if (until := self._open_until(slice)) > self.planned.now:
                text = f"may request {slice.shape}, refused for {until - self.planned.now:.0f} s"
                yield Broken("Q8", job.id, text)

    def _over(self, job: QueueEntry, slice: Wanted) -> Iterator[str]:
        """Yield each limit that a request would exceed."""
        settings = self.planned.settings
        for type, limits in (("", settings.limits), (slice.type, settings.by_type.get(slice.type))):
            running, chips = self.running[job.owner, type], self.chips[job.owner, type]
            if limits and limits.running is not None and running >= limits.running:
                yield f"its owner runs {running} of {limits.running} jobs {type}"
            if limits and limits.chips is not None and chips + slice.chips > limits.chips:
                yield f"its owner holds {chips} of {limits.chips} chips {type}"
        quota, used = settings.quota.get(slice.pool), self.pools[slice.pool]
        if quota is not None and used + slice.chips > quota:
            yield f"{used} of {quota} chips of {slice.pool} are in use"
        limit = self.planned.others.group(job.group) if job.group else None
        if limit and self.groups[job.group] >= limit[1]:
            yield f"{self.groups[job.group]} of its group run, of {limit[1]}"

    def _open_until(self, slice: Wanted) -> float:
        times = [c.until for c in self._circuits(slice) if c.limit is None]
        return max(times, default=0.0)

    def _circuits(self, slice: Wanted) -> list[Circuit]:
        """Return the refusals of as much as that slice, or of less."""
        every = self.planned.circuits.values()
        return [c for c in every if c.pool in slice.circuits and c.chips <= slice.chips]

    def _exceeded(self, job: QueueEntry, slice: Wanted) -> list[int]:
        """Return the quotas and limits of each owner, in chips, that are known and smaller than the slice."""
        settings = self.planned.settings
        quota = settings.quota.get(slice.pool)
        of_owner = [settings.limits, settings.by_type.get(slice.type)]
        named = [
            c.limit
            for c in self._circuits(slice)
            if c.limit is not None and c.until > self.planned.now and job.acted_at <= c.opened_at
        ]
        limits = [quota, *named, *(owner.chips for owner in of_owner if owner)]
        return [limit for limit in limits if limit is not None and limit < slice.chips]

    def _holds(self, job: QueueEntry, slice: Wanted, reason: Reason) -> bool:
        """Return whether the reason is true: without it, the job could request its first choice, or has another."""
        settings, type = self.planned.settings, reason.what
        match reason.kind:
            case _K.HANDED_ON:
                givers = [g for g in _givers(self.planned) if g.id in reason.jobs]
                whole_lab = settings.hand_on == "lab"
                return settings.hand_on != "never" and any(
                    (whole_lab or g.owner == job.owner) and g.gives_until > self.planned.now
                    for g in givers
                )
            case _K.RETRY:
                return self.planned.now < job.wake == reason.until
            case _K.GROUP:
                limit = self.planned.others.group(job.group)
                return limit is not None and self.groups[job.group] >= limit[1]
            case _K.RUNNING | _K.CHIPS:
                limits = settings.by_type.get(type) if type else settings.limits
                bound = limits and (limits.running if reason.kind is _K.RUNNING else limits.chips)
                if bound is None or type not in ("", slice.type):
                    return False
                if reason.kind is _K.RUNNING:
                    return self.running[job.owner, type] >= bound
                return self.chips[job.owner, type] + slice.chips > bound
            case _K.ORDER:
                earlier = {other.id: other for other in self.before}
                return (
                    bool(reason.jobs)
                    and all(
                        any({*w.circuits} & {*slice.circuits} for w in earlier[job_id].wanted)
                        for job_id in reason.jobs
                        if job_id in earlier
                    )
                    and {*reason.jobs} <= earlier.keys()
                )
            case _K.REQUESTED:
                return self.requested[slice.shape] >= REQUESTS
            case _K.REFUSED:
                return self._open_until(slice) == reason.until > self.planned.now
            case _K.TOO_BIG:
                return reason.limit in self._exceeded(job, slice) and reason.count == slice.chips
            case _K.QUOTA:
                quota = settings.quota.get(slice.pool)
                is_over = quota is not None and self.pools[slice.pool] + slice.chips > quota
                return is_over and reason.until in (None, self._start(job, slice.pool))
            case _K.RESERVED:
                keeper, start = self.kept.get(slice.pool, (None, 0.0))
                return any(
                    self._keeps(other, slice.pool)
                    for other in self.before
                    if other.id in reason.jobs
                ) and (
                    keeper is None
                    or self._waited(keeper) >= UNPASSED
                    or (reason.jobs == (keeper.id,) and self._end(job) > start == reason.until)
                )
            case _:
                return False

    def _keeps(self, job: QueueEntry, pool: str) -> bool:
        """Return whether a job may request nothing, and waits for the quota of that pool."""
        place = self.planned.plan.places[job.id]
        kinds = {reason.kind for reason in place.reasons}
        waits = not kinds.isdisjoint((_K.QUOTA, _K.REFUSED))
        return not place.ask and waits and pool in {way.pool for way in job.wanted}

    def _close(self, job: QueueEntry, slice: Wanted, reason: Reason) -> None:
        """Note the shapes and pools that no later job may request now."""
        if reason.kind in (_K.REFUSED, _K.ORDER, _K.REQUESTED):
            # the answer that another job waits for says nothing of smaller requests
            least = slice.chips if reason.kind is _K.ORDER else 0
            self.closed.setdefault(slice.shape, (job.id, least))

    def _keep(self, job: QueueEntry, place: Place) -> None:
        """Note the pools whose chips are kept for the job. Of one whose limit the cloud has named nothing is said."""
        lacks = {reason.what for reason in place.reasons if reason.kind is _K.QUOTA}
        for slice in job.wanted:
            named = any(c.limit is not None for c in self.planned.circuits.values())
            if named or slice.pool not in lacks or slice.pool in self.kept:
                continue
            start = self._start(job, slice.pool)
            if start is not None and _is_kept_for(self.planned, job, slice):
                self.kept[slice.pool] = job, start


def _givers(planned: Planned) -> Iterator[QueueEntry]:
    """Yield each entry, and each candidate of its job."""
    for entry in planned.entries:
        yield entry
        yield from entry.beside


def _is_kept_for(planned: Planned, entry: QueueEntry, slice: Wanted) -> bool:
    """Return whether the quota is kept free for a job that lacks only the quota for that slice."""
    quota, place = planned.settings.quota.get(slice.pool), planned.plan.places[entry.id]
    order = place.order
    if quota is None or order is None or slice.chips > quota or entry.refusals >= LAPSES:
        return False
    if any(r.kind is _K.GIVEN_WAY and r.what == slice.pool for r in place.reasons):
        return True
    return planned.now - max(order.since, entry.waiting_since) >= FREE_PASS


def _leaves(entry: QueueEntry, now: float) -> bool:
    """Return whether a job is about to release its slice."""
    ends = entry.state is State.RELEASING or 0 < entry.leaves <= now + 120
    return ends or bool(entry.gives_way_to)


def expected_length(planned: Planned, entry: QueueEntry) -> float:
    """Return the seconds for which a job holds its slice, by its file, else by earlier jobs, else an hour; and what a
    start takes."""
    known = planned.usage.lengths
    by_program = known.get((entry.owner, entry.program), 3600.0)
    by_group = known.get((entry.owner, entry.group), by_program) if entry.group else by_program
    return 600.0 + max(600.0, entry.time or by_group)


def expected_end(planned: Planned, entry: QueueEntry) -> float:
    """Return when a slice is free: of a job that is late, after double the time, as often as needed."""
    if entry.id in planned.plan.gives_way:
        return planned.now + 60.0
    if entry.leaves:
        return max(entry.leaves, planned.now + 60.0)
    length = expected_length(planned, entry)
    times = (entry.began + length * 2**n for n in range(64))
    return next(at for at in times if at > planned.now)


# Handing on -----------------------------------------------------------------------------------------------------------


def heirs(planned: Planned, giver: QueueEntry, hands_on: Callable[[str], bool]) -> list[str]:
    """Return the jobs of the plan that fit the slice of `giver`, and that no rule keeps from it."""
    by_id = {entry.id: entry for entry in planned.entries}
    names: list[str] = []
    held = giver.holds
    if held is None or any(
        reason.kind is _K.QUOTA and reason.what == slice.pool == held.pool
        for job_id in planned.plan.order
        if (entry := by_id.get(job_id))
        for slice in entry.wanted
        if _is_kept_for(planned, entry, slice)
        for reason in planned.plan.places[job_id].reasons
    ):
        return names
    for job_id in planned.plan.order:
        entry = by_id.get(job_id)
        if entry is None or entry.owner != giver.owner:
            continue
        reasons = planned.plan.places[job_id].reasons
        barred = any(
            reason.kind in (_K.RESERVED, _K.GROUP, _K.RETRY)
            or (reason.kind is _K.HANDED_ON and giver.id not in reason.jobs)
            for reason in reasons
        )
        if (
            held in entry.wanted
            # its checkpoint may be in another region: a copy is made first
            and held not in entry.uncopied
            and giver.slice not in entry.had
            and not barred
            and hands_on(job_id)
        ):
            names.append(job_id)
    return names


ENDED_WELL = (State.SUCCEEDED, State.FAILED)
