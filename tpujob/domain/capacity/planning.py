"""The plan: for each job that waits, what it may request now, or why it must wait. Pure, and a total order: the same
jobs give the same plan, however they are sorted.

1. Jobs that wait for something else (a dependency, a person, a time) get that as their reason.
2. The others are ordered: by band, which rises after a day; in a band by start-time fair queueing over shares and, in a
   share, over owners; then by rank, age and id.
3. One walk in that order. A job requests what is free to be requested; what the cloud refuses it is closed for all jobs
   after it. So shapes are served strictly in order, and no job waits behind one of another shape. The first job that
   only the quota keeps waiting gets a reserved start: when enough of the jobs that hold chips are expected to have
   ended. A later job passes it if it is expected to end before that, or leaves it enough chips (EASY back-fill). So it
   is with a limit that the cloud has named. If jobs of low priority hold enough chips, they give way to that job, and
   the chips are kept for it (`giving_way.py`). The slice of a program that has ended goes at once to the first job that
   it fits: of the same owner, or of any, as the settings say.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace
from math import inf
from operator import attrgetter
from typing import Protocol

from tpujob.domain.capacity import circuits as offered
from tpujob.domain.capacity import giving_way
from tpujob.domain.capacity.dependencies import JobEnd, Met, check_edge
from tpujob.domain.capacity.entries import RELEASED_WITHIN, QueueEntry, Wanted
from tpujob.domain.capacity.run_lengths import Lengths, charged, expected
from tpujob.domain.capacity.settings import NO_LIMITS, QueueSettings
from tpujob.domain.capacity.usage import RecentUsage
from tpujob.domain.failures.retry import due_at
from tpujob.domain.model import Cause, State
from tpujob.domain.observations import (
    PER_OWNER,
    Circuit,
    GiveWay,
    Order,
    Place,
    Reason,
    ReasonKind,
)

#: seconds of waiting after which a job counts as of the next higher band
AGED = 86_400.0
#: requests of one shape that may wait in the cloud's queue at once: a job after them would only wait behind them
REQUESTS = 4
#: seconds for which a job that only the quota keeps waiting may be passed by all smaller ones
FREE_PASS = 1800.0
#: seconds of waiting after which no job passes one that only the quota keeps waiting
UNPASSED = 2 * AGED
#: seconds that a slice is expected to be held beside the job's own time, for its request and its set-up
START_UP = 600.0
#: refusals of a job after which no quota is kept free for it: the cloud has no such slice
LAPSES = 3
#: maximum number of hand-overs of a slice within one owner while a rival of another owner is ahead in the queue
PASSED = 4

#: requests of jobs that race, beside their slices, of all jobs together: each takes calls, and room in a queue
CANDIDATES = 10

_K = ReasonKind
_NOTHING = frozenset[str]()
#: a job that may start, after its sort key among those of its owner, the least first: negative rank, since, number
_Ready = tuple[int, float, int, QueueEntry]


class Others(Protocol):
    """Jobs and groups that entries refer to by id."""

    def end(self, job_id: str) -> JobEnd | None:
        """Return the facts of any job; None: its record was removed."""
        ...

    def element(self, group: str, index: int) -> str | None:
        """Return the id of an element; empty: its record was removed; None: it does not exist yet."""
        ...

    def group(self, group: str) -> tuple[str, int] | None:
        """Return the name of a group, and how many of its elements may hold slices at once; None: any number."""
        ...


@dataclass(frozen=True, slots=True)
class QueuePlan:
    places: Mapping[str, Place]  #: of every job that waits, by id
    order: tuple[str, ...]  #: ids of those that may start, the next one first
    next_at: float  #: when the same jobs may have another plan, if nothing but time passes
    #: by the name of a slice that its job does not need any more, the id of the job that gets it
    heirs: Mapping[str, str] = field(default_factory=dict[str, str])
    #: ids of jobs whose programs have ended and whose slices another job gets, or waits for what they take up
    freed: Set[str] = _NOTHING
    #: by the id of a job that holds chips, the request for which it gives them up
    gives_way: Mapping[str, GiveWay] = field(default_factory=dict[str, GiveWay])
    #: what jobs that race may request beside their slices, by id
    races: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


def plan(
    entries: Iterable[QueueEntry],
    settings: QueueSettings,
    circuits: Mapping[str, Circuit],
    usage: RecentUsage,
    now: float,
    others: Others,
) -> QueuePlan:
    """Return the places of all entries that wait."""
    ordered = sorted(entries, key=attrgetter("number"))
    waiting = [entry for entry in ordered if entry.waits]
    if not waiting and not any(entry.race_left > 0 for entry in ordered):
        return QueuePlan({}, (), inf)
    places: dict[str, Place] = {}
    ready: list[_Ready] = []
    for entry in waiting:
        found, since = _eligible(entry, now, others)
        if found is None:
            ready.append((-entry.rank, since, entry.number, entry))
        else:
            places[entry.id] = found
    barred = len(places)
    walk = _Walk(settings, circuits, usage.lengths, now, others)
    for entry in ordered:
        if entry.holds is not None:
            walk.count(entry, entry.holds)
        if entry.beside:
            walk.count_beside(entry)
    for position, (entry, order) in enumerate(_ordered(ready, settings, usage, now), 1):
        ask, reasons = walk.place(entry, now - max(order.since, entry.waiting_since))
        places[entry.id] = Place(position, ask, reasons, None, order)
    racing = (entry for entry in ordered if entry.race_left > 0)
    races = {entry.id: ask for entry in racing if (ask := walk.race(entry))}
    times = (reason.until for place in places.values() for reason in place.reasons if reason.until)
    next_at = min((at for at in (*times, walk.next_way) if at > now), default=inf)
    order = tuple(places)[barred:]
    return QueuePlan(places, order, next_at, walk.heirs, walk.freed, walk.gives_way, races)


# What a job waits for beside slices -----------------------------------------------------------------------------------


def _eligible(entry: QueueEntry, now: float, others: Others) -> tuple[Place | None, float]:
    """Return the place of a job that may not start yet; else None, and since when it may."""
    if not entry.edges and not entry.held_by and entry.not_before is None:
        return None, entry.since
    reasons: list[Reason] = []
    broken: Reason | None = None
    since = entry.since
    waits: defaultdict[str, list[str]] = defaultdict(list)
    for edge in entry.edges:
        other = (
            others.element(edge.job, entry.index)
            if edge.each and entry.index is not None
            else edge.job
        )
        end = others.end(edge.job if other is None else other)
        if other is None and end is not None:  # not made; once the group has ended, it never is
            end = replace(end, started=None)
        met, at = check_edge(edge, end)
        if met is Met.NEVER:
            how = end.state.value if end else "removed"
            known = (other or edge.job,)
            broken = broken or Reason(_K.DEPENDENCY, known, 1, what=edge.on, how=how)
        elif met is Met.NOT_YET:
            waits[edge.on].append(other or edge.job)
        since = max(since, at)
    for on, jobs in waits.items():
        reasons.append(Reason(_K.DEPENDENCY, tuple(jobs[:3]), len(jobs), what=on))
    if entry.held_by:
        reasons.append(Reason(_K.HELD, what=entry.held_by))
    if entry.not_before is not None:
        since = max(since, entry.not_before)
        if now < entry.not_before:
            reasons.append(Reason(_K.NOT_BEFORE, until=entry.not_before))
    if broken or reasons:
        return Place(0, reasons=tuple(reasons), broken=broken), since
    return None, since


# The order ------------------------------------------------------------------------------------------------------------


def _ordered(
    ready: Sequence[_Ready], settings: QueueSettings, usage: RecentUsage, now: float
) -> Iterator[tuple[QueueEntry, Order]]:
    """Yield jobs in their order."""
    weights = settings.account_weights
    accounts, owners = defaultdict[str, float](float), defaultdict[str, float](float)
    for share, amount in usage.shares.items():
        account = settings.account(share)
        accounts[account] += amount / weights[account]
    for (share, owner), amount in usage.owners.items():
        owners[owner] += amount / settings.own_weight(share)

    levels: defaultdict[int, defaultdict[tuple[str, str], list[_Ready]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for item in ready:
        _, since, _, entry = item
        raised = entry.band > 0 and now - max(since, entry.waiting_since) >= AGED
        levels[entry.band - raised][settings.account(entry.share), entry.owner].append(item)
    for level in sorted(levels):
        yield from _fair(level, levels[level], accounts, owners, settings, usage.lengths)


def _fair(
    level: int,
    queues: Mapping[tuple[str, str], list[_Ready]],
    accounts: defaultdict[str, float],
    owners: defaultdict[str, float],
    settings: QueueSettings,
    lengths: Lengths,
) -> Iterator[tuple[QueueEntry, Order]]:
    """Start-time fair queueing: the account with the least usage for its weight, its owner with the least in all
    accounts, that owner's next job, which is charged to both. Of equal owners, whose next job is the oldest."""
    heaps: defaultdict[str, list[tuple[float, int, str, list[_Ready]]]] = defaultdict(list)
    for (account, owner), jobs in queues.items():
        jobs.sort(reverse=True)  # the next one last
        heaps[account].append((owners[owner], jobs[-1][2], owner, jobs))
    for heap in heaps.values():
        heapify(heap)
    tops = [(accounts[account], account) for account in heaps]
    heapify(tops)
    weights, charges = settings.account_weights, dict[tuple[object, ...], float]()
    own_weights = {share: settings.own_weight(share) for share in {"", *settings.weights}}
    while tops:
        of_account, account = tops[0]
        heap = heaps[account]
        of_owner, number, owner, jobs = heap[0]
        if of_owner < owners[owner]:  # charged since in another account
            heapreplace(heap, (owners[owner], number, owner, jobs))
            continue
        _, since, _, entry = jobs.pop()
        yield entry, Order(level, level < entry.band, of_account, of_owner, entry.rank, since)
        kind = owner, entry.group, entry.program, entry.time, entry.rate
        charge = charges.get(kind)
        if charge is None:
            charge = charges[kind] = entry.rate * charged(entry.time, entry.usual(lengths))
        owners[owner] = of_owner + charge / own_weights.get(entry.share, 1.0)
        accounts[account] = of_account + charge / weights[account]
        if jobs:
            heapreplace(heap, (owners[owner], jobs[-1][2], owner, jobs))
        else:
            heappop(heap)
        if heap:
            heapreplace(tops, (accounts[account], account))
        else:
            heappop(tops)


# The walk -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Used:
    """Jobs and chips that one owner uses, in total or of one type."""

    running: int = 0
    chips: int = 0


@dataclass(slots=True)
class _Kept:
    """Chips of a quota that are kept free for a job."""

    job: str
    start: float  #: when enough chips are expected to be free
    spare: int  #: chips that are then left over
    unpassed: bool  #: no job may pass it

    def lets_pass(self, chips: int, end: float) -> bool:
        """Return whether a job that uses so many chips until `end` leaves enough for the start."""
        return not self.unpassed and (end <= self.start or chips <= self.spare)

    def passed(self, chips: int, end: float) -> None:
        self.spare -= 0 if end <= self.start else chips


def length(entry: QueueEntry, lengths: Lengths) -> float:
    """Return the seconds for which the job is expected to hold a slice from its request on."""
    return START_UP + expected(entry.time, entry.usual(lengths))


def free_at(entry: QueueEntry, lengths: Lengths, now: float) -> float:
    """Return when the slice that a job holds is expected to be free. Of a job that takes longer than was expected, half
    is taken to be over, at doubled lengths."""
    if entry.leaves:
        return max(entry.leaves, now + RELEASED_WITHIN)
    seconds = length(entry, lengths)
    while entry.began + seconds <= now:
        seconds *= 2
    return entry.began + seconds


@dataclass(slots=True)
class _Walk:
    settings: QueueSettings
    circuits: Mapping[str, Circuit]
    lengths: Lengths
    now: float
    others: Others
    owners: defaultdict[tuple[str, str], _Used] = field(default_factory=lambda: defaultdict(_Used))
    pools: Counter[str] = field(default_factory=Counter[str])
    groups: Counter[str] = field(default_factory=Counter[str])
    #: requests that wait in the cloud's queue, by shape
    requested: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list[str]))
    #: the circuits of a shape and so many chips
    about: dict[tuple[str, int], Sequence[Circuit]] = field(
        default_factory=dict[tuple[str, int], Sequence[Circuit]]
    )
    #: why a shape and so many chips exceed the quota
    above: dict[tuple[str, int], list[Reason]] = field(
        default_factory=dict[tuple[str, int], list[Reason]]
    )
    #: jobs that request what was refused, with their chips: the others wait for the answer, if they need as many
    asking: defaultdict[str, list[tuple[int, str]]] = field(
        default_factory=lambda: defaultdict(list[tuple[int, str]])
    )
    #: the jobs for which a shape is closed to all that come later
    closed: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list[str]))
    #: by pool: the jobs that hold chips; and the ends and chips of those that get some in this plan
    holders: defaultdict[str, list[QueueEntry]] = field(
        default_factory=lambda: defaultdict(list[QueueEntry])
    )
    requests: defaultdict[str, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list[tuple[float, int]])
    )
    first: set[str] = field(default_factory=set[str])  #: pools that a job before waits for
    kept: dict[str, _Kept] = field(default_factory=dict[str, _Kept])
    #: why an owner may not request a shape and so many chips, until something is taken, closed or kept
    against: dict[tuple[str, str, int], Reason] = field(
        default_factory=dict[tuple[str, str, int], Reason]
    )
    #: the same of a quota, which is kept for another job
    told: dict[tuple[str, str, int], tuple[Reason]] = field(
        default_factory=dict[tuple[str, str, int], tuple[Reason]]
    )
    #: jobs whose programs have ended and whose slices go to no other job yet
    givers: list[QueueEntry] = field(default_factory=list[QueueEntry])
    heirs: dict[str, str] = field(default_factory=dict[str, str])
    freed: set[str] = field(default_factory=set[str])
    headed: set[str] = field(default_factory=set[str])  #: pools that a job before heads
    gives_way: dict[str, GiveWay] = field(default_factory=dict[str, GiveWay])
    next_way: float = inf  #: when another job may give way to one that waits
    #: pools whose chips, and owners whose limit, a job waits for
    short: set[str] = field(default_factory=set[str])
    candidates: int = 0  #: requests of jobs that race, beside their slices

    def count(self, entry: QueueEntry, way: Wanted, jobs: int = 1) -> None:
        """Count what a job holds or requests. `jobs`: 0 for what it requests beside its slice."""
        self._take(entry, way, jobs)
        self.holders[way.pool].append(entry)
        if entry.gives_until > self.now and self.settings.hand_on != "never":
            self.givers.append(entry)
        if entry.in_cloud_queue:
            self.requested[way.shape].append(entry.id)

    def count_beside(self, entry: QueueEntry) -> None:
        """Count the candidates of a job: their chips, and no job more."""
        for candidate in entry.beside:
            if candidate.holds:
                self.count(candidate, candidate.holds, jobs=0)
                self.candidates += not candidate.lost

    def _take(self, entry: QueueEntry, way: Wanted, jobs: int = 1) -> None:
        self.against.clear()
        for type in ("", way.type):
            used = self.owners[entry.owner, type]
            used.running += jobs
            used.chips += way.chips
        self.pools[way.pool] += way.chips
        if entry.group:
            self.groups[entry.group] += jobs

    def place(self, entry: QueueEntry, waited: float) -> tuple[frozenset[str], tuple[Reason, ...]]:
        """Return what the next job in order may request, or why nothing. `waited`: seconds."""
        if not self.givers:
            return self._requests(entry, waited)
        if giver := self._giver(entry, waited):
            self.givers.remove(giver)
            self.heirs[giver.slice] = entry.id
            self.freed.add(giver.id)
            if giver.holds:
                self.holders[giver.holds.pool].remove(giver)
                self._use(entry, giver.holds)
            if (giver.lost or giver.owner != entry.owner) and giver.holds:
                self._take(entry, giver.holds)
                self.pools[giver.holds.pool] -= giver.holds.chips  # no more than before
            elif entry.group != giver.group:
                self.groups[entry.group] += 1
            return _NOTHING, (Reason(_K.HANDED_ON, (giver.id,), 1, until=giver.gives_until),)
        ask, reasons = self._requests(entry, waited)
        for giver in [*self.givers] if entry.refusals or not ask else ():
            if giver.lost:  # which is deleted at once
                continue
            if giver.owner == entry.owner:  # whose limits its slice counts for
                self.freed.add(giver.id)
            elif _are_rivals(entry, giver):
                self.freed.add(giver.id)
                if self.settings.hand_on == "owner" and giver.epoch >= PASSED:
                    self.givers.remove(giver)  # it has passed jobs of others often enough
        return ask, reasons

    def _giver(self, entry: QueueEntry, waited: float) -> QueueEntry | None:
        """Return a job whose slice this one gets; None: there is none."""
        usable = [g for g in self.givers if self._may_get(entry, g)]
        if entry.patience:
            usable = [g for g in usable if g.holds and entry.patience.get(g.holds, 0.0) <= waited]
        if usable and self._group_full(entry):
            usable = [g for g in usable if g.group == entry.group and not g.lost]
        return min(usable, key=lambda g: g.owner != entry.owner, default=None)

    def _may_get(self, entry: QueueEntry, giver: QueueEntry) -> bool:
        held = giver.holds
        if held is None or not entry.fits(giver):
            return False
        kept = self.kept.get(held.pool)
        if kept and not kept.lets_pass(held.chips, self.now + length(entry, self.lengths)):
            return False
        own = giver.owner == entry.owner
        if own and not giver.lost:
            return True
        return (own or self.settings.hand_on == "lab") and not self._over_limit(entry, held)

    def _requests(
        self, entry: QueueEntry, waited: float
    ) -> tuple[frozenset[str], tuple[Reason, ...]]:
        if entry.group and (full := self._group_full(entry)):
            return _NOTHING, (full,)
        if self.now < entry.wake and self.now < due_at(entry.wake, self.now):
            self.headed.update(way.pool for way in entry.wanted)  # it requests again soon
            return _NOTHING, (Reason(_K.RETRY, until=entry.wake),)
        if told := self._as_before(entry):
            return _NOTHING, told
        ask: list[Wanted] = []
        reasons: list[Reason] = []
        lacks: list[Wanted] = []  # those that the quota alone denies
        for way in entry.wanted:
            key = entry.owner, way.shape, way.chips
            reason = (
                self._too_big(entry, way)
                or self._too_soon(entry, way, waited)
                or self.against.get(key)
                or self._over_limit(entry, way)
                or self._behind(way)
                or self._refused(way)
                or self._over_quota(way)
                or self._would_delay(entry, way)
            )
            if reason is None:
                ask.append(way)
                continue
            reasons.append(reason)
            filled = reason.kind is _K.REFUSED and self._fills(way)
            if filled or reason.kind in (_K.QUOTA, _K.RESERVED):
                self.short.add(way.pool)
            elif reason.kind is _K.CHIPS:
                self.short.add(entry.owner)
            if reason.kind in (_K.TOO_BIG, _K.RESERVED, _K.LARGER):
                continue  # whether it holds depends on the job, and no other waits for it
            if filled or (reason.kind is _K.QUOTA and entry.refusals < LAPSES):
                lacks.append(way)
            self.against[key] = reason
            if reason.kind is _K.QUOTA and way.pool in self.kept:
                self.told[key] = (reason,)
            if reason.kind is _K.REFUSED:
                self.closed[way.shape].append(entry.id)
                self.against.clear()
        first = [
            way
            for way in lacks
            if way.pool not in self.kept and (waited >= FREE_PASS or way.pool not in self.first)
        ]
        cleared = None if ask else self._clear_way(entry, first)
        if first or (ask and self.circuits):
            reasons = self._keep_quota(entry, first, ask, reasons, waited, cleared)
        if not ask:
            self.headed.update(
                way.pool
                for way, reason in zip(entry.wanted, reasons, strict=True)
                if reason.kind is _K.QUOTA or reason.how == Cause.QUOTA
            )
            if cleared:
                reasons = [self._given_way(entry, cleared), *reasons]
            several = len(reasons) > 1
            return _NOTHING, tuple(dict.fromkeys(reasons) if several else reasons)
        self._take(entry, ask[0])
        if self.settings.quota or self.circuits:
            self._use(entry, ask[0])
        for way in ask if self.circuits else ():
            for pool in {circuit.pool for circuit in self._about(way)}:
                self.asking[pool].append((way.chips, entry.id))
        return frozenset([way.shape for way in ask]), ()

    def race(self, entry: QueueEntry) -> frozenset[str]:
        """Return what a job may request beside its slice, after all jobs that wait: nothing that one of them lacks."""
        ask: list[str] = []
        for way in entry.race:
            if len(ask) == entry.race_left or self.candidates >= CANDIDATES:
                break
            limit = self._limit(way)
            if (
                entry.owner in self.short
                or way.pool in self.short
                or way.pool in self.kept
                or self._too_big(entry, way)
                or self._over_limit(entry, way, jobs=0)
                or self._behind(way)
                or self._refused(way)
                or (limit is not None and self.pools[way.pool] + way.chips > limit)
            ):
                continue
            self._take(entry, way, jobs=0)
            self.candidates += 1
            ask.append(way.shape)
        return frozenset(ask)

    def _as_before(self, entry: QueueEntry) -> tuple[Reason, ...]:
        """Return the reason of a job that lacks only a quota which is kept for another job, as was said of a job of the
        same owner and size; empty: it must be seen."""
        if not self.told or len(entry.wanted) != 1:
            return ()
        way = entry.wanted[0]
        too_big = self.above.get((way.shape, way.chips))
        return () if too_big else self.told.get((entry.owner, way.shape, way.chips), ())

    def _keep_quota(
        self,
        entry: QueueEntry,
        lacks: Sequence[Wanted],
        ask: Sequence[Wanted],
        reasons: list[Reason],
        waited: float,
        cleared: Wanted | None,
    ) -> list[Reason]:
        """Keep chips free for the first job of a pool that may request nothing, or only what will be refused: after
        FREE_PASS, and at once for a slice for which others give way (`cleared`). Returns its reasons, with when enough
        are expected to be free, and since when they are kept."""
        if not all(map(self._fills, ask)):
            return reasons
        starts, since = dict[str, float](), round(self.now - waited + FREE_PASS, 3)
        for way in (*lacks, *ask):
            kept = None if way.pool in starts else self._start(entry, way, waited)
            if kept is None or way.pool in self.kept:
                continue
            self.first.add(way.pool)
            starts[way.pool] = kept.start
            if waited >= FREE_PASS or way == cleared:
                self.kept[way.pool] = kept
                self.against.clear()
        if cleared and waited < FREE_PASS:
            since = None  # they are kept at once
        return [
            replace(reason, until=starts[reason.what], since=since)
            if reason.kind is _K.QUOTA and reason.what in starts
            else reason
            for reason in reasons
        ]

    def _start(self, entry: QueueEntry, way: Wanted, waited: float) -> _Kept | None:
        """Return the start of a job that waits for a quota: when enough of those who hold chips are expected to have
        ended; None: others than the jobs hold chips."""
        limit = self._limit(way)
        if limit is None:
            return None
        free = limit - self.pools[way.pool]
        ends = [
            (
                self.now + RELEASED_WITHIN
                if holder.id in self.gives_way
                else free_at(holder, self.lengths, self.now),
                holder.holds.chips if holder.holds else 0,
            )
            for holder in self.holders[way.pool]
        ]
        start = inf
        for end, chips in sorted(ends + self.requests[way.pool]):
            if end > start:
                break
            free += chips
            if free >= way.chips:
                start = end
        if free < way.chips:
            return None
        return _Kept(entry.id, start, free - way.chips, waited >= UNPASSED)

    def _clear_way(self, entry: QueueEntry, lacks: Sequence[Wanted]) -> Wanted | None:
        """Return the slice for which enough jobs of low priority give way to the first job of its pool, or have given
        way; None: there is none, or it waits for more than chips."""
        if not self.settings.give_way or entry.band >= giving_way.LOW or entry.refusals >= LAPSES:
            return None
        for way in lacks:
            if way.pool in self.headed or way in entry.uncopied or not self._lacks_quota(way):
                continue
            holders = [(h, h.holds) for h in self.holders[way.pool] if h.holds]
            gone = sum(held.chips for holder, held in holders if self._leaves(holder))
            lacking = self.pools[way.pool] + way.chips - gone - self._least_limit(way)
            if lacking <= 0:
                if any(holder.gives_way_to == entry.id for holder, _ in holders):
                    return way
                continue  # enough chips are free soon
            able = [
                giving_way.Holder(
                    inf if holder.runs_since is None else holder.runs_since,
                    holder.number,
                    held.chips,
                    holder.id,
                )
                for holder, held in holders
                if holder.gives_way_at <= self.now
            ]
            if chosen := giving_way.choose(lacking, able):
                self.gives_way |= {job.id: GiveWay(entry.id, way.shape) for job in chosen}
                return way
            later = (h.gives_way_at for h, _ in holders if h.gives_way_at > self.now)
            self.next_way = min(self.next_way, *later, inf)
        return None

    def _leaves(self, holder: QueueEntry) -> bool:
        """Return whether a job that holds chips is about to release them. Clocks of backends may differ by a little."""
        if holder.gives_way_to or holder.state is State.RELEASING:
            return True
        return 0 < holder.leaves <= self.now + 2 * RELEASED_WITHIN

    def _given_way(self, entry: QueueEntry, way: Wanted) -> Reason:
        jobs = [
            holder.id
            for holder in self.holders[way.pool]
            if holder.gives_way_to == entry.id
            or self.gives_way.get(holder.id) == GiveWay(entry.id, way.shape)
        ]
        kept = self.kept.get(way.pool)
        until = kept.start if kept and kept.job == entry.id else None
        return Reason(_K.GIVEN_WAY, tuple(jobs[:3]), len(jobs), what=way.pool, until=until)

    def _lacks_quota(self, way: Wanted) -> bool:
        """Return whether the cloud has refused the slice for want of quota alone, if it has refused it."""
        open_ones = (c for c in self._about(way) if c.limit is None and c.until > self.now)
        return all(circuit.cause is Cause.QUOTA for circuit in open_ones)

    def _least_limit(self, way: Wanted) -> int:
        """Return the chips of the quota, by the settings and as the cloud has named them."""
        named = self.circuits.get(offered.key_of_limit(way.pool))
        limits = (self.settings.quota.get(way.pool), named.limit if named else None)
        return min(limit for limit in limits if limit is not None)

    def _use(self, entry: QueueEntry, way: Wanted) -> None:
        """Note until when a job of this plan is expected to hold chips."""
        end = self.now + length(entry, self.lengths)
        self.requests[way.pool].append((end, way.chips))
        kept = self.kept.get(way.pool)
        if kept and kept.job != entry.id:
            kept.passed(way.chips, end)

    def _limit(self, way: Wanted) -> int | None:
        """Return the chips of the quota, by the settings or as the cloud has named them; None: unknown."""
        limit = self.settings.quota.get(way.pool)
        if limit is None:
            named = self.circuits.get(offered.key_of_limit(way.pool))
            limit = named.limit if named else None
        return limit

    def _fills(self, way: Wanted) -> bool:
        """Return whether the jobs hold so much of the quota, by the limit that the cloud has named, that too little is
        left for the slice. Else others of the project hold it, and to keep it free would be in vain."""
        named = self.circuits.get(offered.key_of_limit(way.pool))
        limit = named.limit if named else None
        return limit is not None and way.chips <= limit < self.pools[way.pool] + way.chips

    def _group_full(self, entry: QueueEntry) -> Reason | None:
        limit = self.others.group(entry.group) if entry.group else None
        if limit is None or self.groups[entry.group] < limit[1]:
            return None
        return Reason(_K.GROUP, count=self.groups[entry.group], limit=limit[1], what=limit[0])

    def _over_limit(self, entry: QueueEntry, way: Wanted, jobs: int = 1) -> Reason | None:
        """Return the owner's limit that so many more jobs with this slice exceed; None: they exceed none."""
        for type, limits in (
            ("", self.settings.limits),
            (way.type, self.settings.by_type.get(way.type)),
        ):
            if limits is None or limits is NO_LIMITS:
                continue
            used = self.owners[entry.owner, type]
            if limits.running is not None and jobs and used.running >= limits.running:
                return Reason(_K.RUNNING, count=used.running, limit=limits.running, what=type)
            if limits.chips is not None and used.chips + way.chips > limits.chips:
                return Reason(_K.CHIPS, count=used.chips, limit=limits.chips, what=type)
        return None

    def _behind(self, way: Wanted) -> Reason | None:
        before = self.closed.get(way.shape) if self.closed else None
        for pool in way.circuits if self.asking and not before else ():
            before = [job_id for chips, job_id in self.asking.get(pool, ()) if chips <= way.chips]
            if before:
                break
        if before:
            return Reason(_K.ORDER, tuple(before[:3]), len(before), what=way.shape)
        waiting = self.requested.get(way.shape, ())
        if len(waiting) >= REQUESTS:
            return Reason(_K.REQUESTED, tuple(waiting[:3]), len(waiting), what=way.shape)
        return None

    def _refused(self, way: Wanted) -> Reason | None:
        open_ones = [c for c in self._about(way) if c.limit is None and c.until > self.now]
        if not open_ones:
            return None
        last = max(open_ones, key=attrgetter("until"))
        return Reason(
            _K.REFUSED, (), last.refusals, 0, last.what, last.cause, last.until, last.since
        )

    def _about(self, way: Wanted) -> Sequence[Circuit]:
        if not self.circuits:
            return ()
        key = way.shape, way.chips
        if key not in self.about:
            self.about[key] = [*offered.concerning(self.circuits, way.circuits, way.chips).values()]
        return self.about[key]

    def _too_big(self, entry: QueueEntry, way: Wanted) -> Reason | None:
        """Return why the slice exceeds the whole quota. A limit that the cloud has named does not hold for a job that a
        person has resumed or released after that."""
        key = way.shape, way.chips
        if key not in self.above:
            self.above[key] = too_big(way, self.settings, self.circuits, self.now)
        for reason in self.above[key]:
            if reason.since is None or entry.acted_at <= reason.since:
                return reason
        return None

    def _too_soon(self, entry: QueueEntry, way: Wanted, waited: float) -> Reason | None:
        """Return why an elastic job does not request a smaller slice yet: a larger one is still worth its wait."""
        seconds = entry.patience.get(way)
        if seconds is None or waited >= seconds:
            return None  # of any other job the wait may be negative, after a clock was set back
        until = round(self.now + seconds - waited, 3)
        return Reason(_K.LARGER, what=entry.wanted[0].type, how=way.type, until=until)

    def _over_quota(self, way: Wanted) -> Reason | None:
        limit, used = self.settings.quota.get(way.pool), self.pools[way.pool]
        if limit is None or used + way.chips <= limit:
            return None
        return Reason(_K.QUOTA, count=used, limit=limit, what=way.pool)

    def _would_delay(self, entry: QueueEntry, way: Wanted) -> Reason | None:
        """Return the job that chips are kept free for, if this one takes too many of them for too long."""
        kept = self.kept.get(way.pool)
        if kept is None:
            return None
        seconds = length(entry, self.lengths)
        if kept.lets_pass(way.chips, self.now + seconds):
            return None
        return Reason(_K.RESERVED, (kept.job,), 1, round(seconds), way.pool, until=kept.start)


def too_big(
    way: Wanted, settings: QueueSettings, circuits: Mapping[str, Circuit], now: float
) -> list[Reason]:
    """Return why a slice exceeds the whole quota, by the settings or by what the cloud has named, or the limit of each
    owner."""
    limit = settings.quota.get(way.pool)
    over = limit is not None and way.chips > limit
    reasons = [Reason(_K.TOO_BIG, (), way.chips, limit or 0, way.pool)] if over else []
    for limits in (settings.limits, settings.by_type.get(way.type, NO_LIMITS)):
        if limits.chips is not None and way.chips > limits.chips:
            reasons.append(Reason(_K.TOO_BIG, (), way.chips, limits.chips, way.type, PER_OWNER))
    return reasons + [
        Reason(_K.TOO_BIG, (), way.chips, c.limit, c.pool, "", c.until, c.opened_at)
        for c in offered.concerning(circuits, way.circuits, way.chips).values()
        if c.limit is not None and now < c.until
    ]


def _are_rivals(entry: QueueEntry, giver: QueueEntry) -> bool:
    """Return whether a slice that is released may be what the job waits for."""
    way = giver.holds
    return way is not None and any(
        w.pool == way.pool or not {*w.circuits}.isdisjoint(way.circuits) for w in entry.wanted
    )
