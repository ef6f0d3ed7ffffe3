"""The queue of a lab: the plans of each backend, and their effects on records (Q1, Q2, Q7-Q10, Q12-Q15)."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from tests.support.simulation import queue_rules as rules
from tests.support.simulation.effects import Outage
from tests.support.simulation.queue_rules import Planned
from tests.support.simulation.sim import Broken, Sim
from tpujob.domain.capacity.dependencies import JobEnd, Met, facts_of
from tpujob.domain.capacity.entries import HANDED_WITHIN, QueueEntry, entry, wanted
from tpujob.domain.capacity.planning import PASSED
from tpujob.domain.capacity.usage import RecentUsage, sums, used
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Cause, DesiredState, Job, Slice, State
from tpujob.domain.observations import Present, ReasonKind, SliceSeen, SliceState
from tpujob.domain.spec.elements import at_once
from tpujob.engine.queue import REFRESH

#: seconds after which each backend knows of a change: its reads, and what clocks differ
KNOWN = REFRESH + 4
#: seconds until a job is looked at again whose commit has failed: until then its backend takes it for made
AGAIN = 60.0
#: seconds after which a plan of the same jobs is checked again; and the sums of what was used
SELDOM = 120.0
#: micro-dollars by which what was used may differ: clocks do
CENTS = 100_000.0
#: seconds for which a job runs before it gives way, and between two times that it does; seconds by which the times of
#: a plan and of what follows from it may differ
RAN, HOURLY, SLACK = 1200.0, 3600.0, 60.0
_REQUESTS = (EventKind.SLICE_REQUESTED, EventKind.CANDIDATE_REQUESTED)
_GETS = (*_REQUESTS, EventKind.SLICE_RECEIVED)
_HARMLESS = (None, Cause.CRASH, Cause.OOM_HBM, Cause.BAD_SPEC, Cause.SETUP)


class QueueChecks:
    def __init__(
        self, sim: Sim, jobs: Mapping[str, Job], broken: Broken, store_outage: Outage
    ) -> None:
        self.sim, self.jobs, self.broken, self.outage = sim, jobs, broken, store_outage
        #: of each backend, the newest last
        self.plans: defaultdict[str, deque[Planned]] = defaultdict(lambda: deque(maxlen=6))
        self.changed: dict[str, float] = {}  #: time of each record's last write
        self.tried: dict[tuple[str, str], float] = {}  #: (backend, job): a commit was begun
        self.ticked: dict[tuple[str, str], float] = {}  #: (backend, job): its newest tick began
        self.read: dict[str, float] = {}  #: when each backend last could read all that had changed
        self.stops: set[str] = set()  #: slices on which a stop was tried
        #: job: who requested its slice, or gave the job to its owner, and when
        self.asked: dict[str, tuple[str, float]] = {}
        self.cancelled: dict[str, float] = {}  #: groups: when
        self.held: dict[str, float] = {}  #: groups: when
        self.left: set[tuple[str, str]] = (
            set()
        )  #: share and owner of jobs that were removed or handed over
        self.inherited: set[str] = set()  #: jobs that were handed over to another user
        self._entries: dict[str, tuple[tuple[int, int], QueueEntry]] = {}
        self._same: dict[tuple[str, str], tuple[QueueEntry, QueueEntry]] = {}
        self._checked: dict[str, float] = {}
        self._summed: dict[str, float] = {}
        self._elements: dict[tuple[str, int], str] = {}
        #: whether a record cannot be read, or could not until so many seconds ago
        self.unread: Callable[[str, float], bool] = lambda job, ago: False

    # Plans ------------------------------------------------------------------------------------------------------------

    def planning(self, real: Callable[..., Any], *args: Any) -> Any:
        """Make a plan in the place of `plan`, and check the plan."""
        entries, *rest = tuple(args[0]), *args[1:]
        plan = real(entries, *rest)
        name = self.sim.me.process.name if self.sim.me.process else ""
        planned = Planned(entries, *rest, plan)
        last = self.plans[name][-1] if self.plans[name] else None
        self.plans[name].append(planned)
        if not plan.places:
            return plan
        if self.outage.until <= self.sim.now - 1:
            self.read[name] = self.sim.now
        same = last is not None and last.entries == entries and last.circuits == planned.circuits
        if same and self.sim.now - self._checked.get(name, 0.0) < SELDOM:
            return plan
        self._checked[name] = self.sim.now
        for violation in rules.every(planned):
            self.broken(violation.rule, violation.job, violation.text)
        again = real(entries[::-1], *rest)
        if again != plan:
            self.broken("Q1", "", f"other places for the same jobs: {plan.order}, {again.order}")
        self._planned(name, planned)
        return plan

    def _planned(self, name: str, planned: Planned) -> None:
        if self.outage.until > self.sim.now - 1:
            return  # nothing can be read
        if self.sim.now - planned.now > KNOWN:
            return  # it was held up on the way, and what follows from it is too old to be done
        self._is_fresh(name, planned)
        if planned.usage.owners and self.sim.now - self._summed.get(name, 0.0) > SELDOM:
            self._summed[name] = self.sim.now
            self._adds_up(name, planned.usage, planned.now)

    def entry(self, job: Job, at: float | None = None) -> QueueEntry:
        """Return the entry of a record; of a job with a deadline, as it is at that time, or now."""
        group = self.jobs.get(job.group)
        group = group if group and not group.state.final else None
        if job.expected:
            return entry(job, group=group, now=self.sim.now if at is None else at)
        version = job.version, group.version if group else 0
        cached = self._entries.get(job.id)
        if cached is None or cached[0] != version:
            cached = self._entries[job.id] = version, entry(job, group=group)
        return cached[1]

    def _is_fresh(self, name: str, planned: Planned) -> None:
        """Q1: each backend plans the same jobs, as they are written, but for what was written in the last seconds."""
        by_id = {entry_.id: entry_ for entry_ in planned.entries}
        for job in self.jobs.values():
            if job.spec.is_group:
                continue
            used = by_id.pop(job.id, None)
            right = None if job.state.final else self.entry(job, planned.now)
            if used is None or right is None:
                same = used is right
            else:
                last = self._same.get((name, job.id))
                same = last is not None and last[0] is used and last[1] is right
                # a slice that the job could not use counts as one that it had
                if not same and (same := replace(used, had=right.had) == right):
                    self._same[name, job.id] = used, right
            if not same and not self._is_new(name, job.id) and not self._is_new(name, job.group):
                text = f"{name} plans with {used}, and its record says {right}"
                self.broken("Q1", job.id, f"{self._age(job.id):.0f} s after a change {text}")
        for job_id in by_id:
            if not self._is_new(name, job_id):
                self.broken("Q1", job_id, f"{name} plans with it, and it is not there")

    def _age(self, job_id: str) -> float:
        return self.sim.now - self.changed.get(job_id, 0.0)

    def _is_new(self, name: str, job_id: str) -> bool:
        """Return whether a backend need not know the job's state yet."""
        lately = self._age(job_id) <= KNOWN or self.unread(job_id, AGAIN)
        return lately or self._tried(name, job_id)

    def _tried(self, name: str, job_id: str) -> bool:
        """Return whether a backend has lately tried to change a job, and may not know the result."""
        at, process = self.tried.get((name, job_id)), self.sim.me.process
        if at is None:
            return False
        paused = process.paused_until if process else 0.0
        return self.sim.now - max(at, paused) <= AGAIN

    def _adds_up(self, name: str, usage: RecentUsage, now: float) -> None:
        """Q7: the usage of owners and shares is the sum of their jobs' usage."""
        lengths = usage.lengths
        rows = [
            (job.spec.share, job.submitter, used(job, now, lengths)) for job in self.jobs.values()
        ]
        unsure = {
            (job.spec.share, job.submitter)
            for job in self.jobs.values()
            if self._is_new(name, job.id)
        } | self.left
        right = sums(rows, lengths)
        if below := [key for key, amount in right.owners.items() if amount < 0]:
            self.broken("Q7", "", f"{below[0]} has used less than nothing")
        for key in right.owners.keys() | usage.owners.keys():
            if key in unsure:
                continue
            has, should = usage.owners.get(key, 0.0), right.owners.get(key, 0.0)
            if abs(has - should) > 0.01 * should + CENTS:
                text = (
                    f"{name} counts ${has / 1e6:.3f} for {key}; its jobs used ${should / 1e6:.3f}"
                )
                self.broken("Q7", "", text)

    # Records ----------------------------------------------------------------------------------------------------------

    def submitted(self, job: Job) -> None:
        self.changed[job.id] = self.sim.now
        if job.spec.is_group and job.held_by:
            self.held[job.id] = self.sim.now
        if job.index is not None:
            self._elements[job.group, job.index] = job.id
        for edge in job.edges:
            if edge.job >= (job.group or job.id):
                self.broken("Q10", job.id, f"waits for {edge.job}, which was not there before it")

    def removed(self, job: Job) -> None:
        self.changed[job.id] = self.sim.now
        self.left.add((job.spec.share, job.submitter))

    def committed(self, name: str, before: Job, job: Job, event: Event) -> None:
        self.changed[job.id] = self.sim.now
        if job.submitter != before.submitter:
            self.left.add((before.spec.share, before.submitter))
            self.inherited.add(job.id)
        if job.spec.is_group:
            if job.desired is DesiredState.RUN:
                self.cancelled.pop(job.id, None)
            else:
                self.cancelled.setdefault(job.id, self.sim.now)
            if not job.held_by:
                self.held.pop(job.id, None)
            else:
                self.held.setdefault(job.id, self.sim.now)
            if job.state.final:
                self._ended(job)
        if event.kind is EventKind.SLICE_KEPT:
            latest = job.state_since + self.plans[name][-1].settings.keep
            if job.hold_until is None or job.hold_until > latest:
                self.broken("Q5", job.id, f"keeps its slice until {job.hold_until}, not {latest}")
        if event.kind is EventKind.HANDED_OVER:  # with its slice
            self.asked[job.id] = name, self.sim.now
        if event.gives_way_to:
            self._may_give_way(name, before, job, event)
        if event.kind in _GETS:
            self._may_get(before, event)
            self._may_name_its_share(name, job)
            self.asked[job.id] = name, self.sim.now
            if event.kind in _REQUESTS:
                self._within_limits(name, job)

    def _may_give_way(self, name: str, before: Job, job: Job, event: Event) -> None:
        """Q9: a job of low priority gives way to one of a higher priority that waits: before it has a slice, or when it
        has run for 20 min; once an hour, at no cost of retries, and only while chips are lacking."""
        head = self.jobs[event.gives_way_to]
        priorities = before.spec.priority, head.spec.priority
        if priorities[0] != "low" or priorities[1] == "low":
            self.broken("Q9", job.id, f"gives way to {head.id}: priorities {priorities}")
        if not self.plans[name][-1].settings.give_way:
            self.broken("Q9", job.id, f"gives way to {head.id}, and nobody is to give way")
        if head.state is not State.QUEUED and self._age(head.id) > KNOWN:
            self.broken("Q9", job.id, f"gives way to {head.id}, which is {head.state}")
        attempt = before.attempt if before.state is State.RUNNING else None
        ran = event.at - (attempt.running_at or event.at) if attempt else RAN
        if ran < RAN - SLACK or before.state not in (State.PROVISIONING, State.RUNNING):
            self.broken("Q9", job.id, f"gives way after {ran:.0f} s, while it is {before.state}")
        for earlier in before.slices:
            if earlier.gave_way and event.at - earlier.gave_way.at < HOURLY - SLACK:
                ago = event.at - earlier.gave_way.at
                self.broken("Q9", job.id, f"gives way for the second time in {ago:.0f} s")
        if job.retries_used != before.retries_used:
            self.broken("Q9", job.id, f"has spent a retry: {job.retries_used}")
        self._suffices(name, job, head)

    def _suffices(self, name: str, job: Job, head: Job) -> None:
        """Q9: without the chips of this job the other one cannot start. Jobs that lately began or ceased to hold chips
        may not be known yet."""
        newest = self.plans[name][-1]
        quota, held = newest.settings.quota, self.entry(job).holds
        if held is None or held.pool not in quota:
            return
        pool, free = held.pool, quota[held.pool] - held.chips
        needed = [w.chips for w in self.entry(head).wanted if w.pool == pool]
        if not needed:
            return
        for asks in takewhile(head.id.__ne__, newest.plan.order):
            ways = self.entry(self.jobs[asks]).wanted if newest.plan.places[asks].ask else ()
            free -= max((w.chips for w in ways if w.pool == pool), default=0)
        for other in self.jobs.values():
            if other.spec.is_group or other.id in (job.id, head.id):
                continue
            item = self.entry(other)
            given = item.gives_way_to == head.id
            if not given and self._age(other.id) <= KNOWN:
                return
            leaves = other.state is State.RELEASING or 0 < item.leaves <= self.sim.now + 60
            if item.holds and item.holds.pool == pool and not (given or leaves):
                free -= item.holds.chips
        if free >= max(needed):
            text = f"gives way to {head.id}, for which {free} chips are about to be free"
            self.broken("Q9", job.id, text)

    def _ended(self, group: Job) -> None:
        """I6: no group ends before its elements; one may have been resumed in that moment."""
        for job in self.jobs.values():
            resumed = job.version > 1 and self._age(job.id) <= KNOWN
            if job.group == group.id and not job.state.final and not resumed:
                text = f"ended as {group.state} while its element {job.id} is {job.state}"
                self.broken("I6", group.id, text)

    def _may_get(self, job: Job, event: Event) -> None:
        """Q2, Q10, Q13: the job is not held, its time and its conditions have come, its group is not cancelled."""
        process = self.sim.me.process
        if job.held_by:
            self.broken("Q2", job.id, f"is held by {job.held_by}, and {event.text}")
        if job.spec.not_before is not None and self.sim.now < job.spec.not_before - 5:
            self.broken("Q2", job.id, f"{event.text}, before its time")
        for other, on, state in () if job.slices else rules.met_edges(self.entry(job), self):
            if state is not Met.YES and self._age(other) > KNOWN:
                self.broken("Q10", job.id, f"{event.text}; it waits for the {on} of {other}")
        for rule, times, word in (("Q13", self.cancelled, "cancelled"), ("Q2", self.held, "held")):
            since = times.get(job.group)
            if since is not None and (process is None or process.paused_until < since):
                ago = self.sim.now - since
                self.broken(rule, job.id, f"{event.text}, {ago:.1f} s after its group was {word}")

    def _may_name_its_share(self, name: str, job: Job) -> None:
        """Q8: the owner of a job is a member of its share."""
        for planned in [*self.plans[name]][-1:]:
            members = planned.settings.members.get(job.spec.share, {job.user})
            if job.user not in members and job.id not in self.inherited:
                self.broken("Q8", job.id, f"is of {job.user}, who is no member of {job.spec.share}")

    def _within_limits(self, name: str, job: Job) -> None:
        """Q8: limits hold in the records, too; but for what another backend requested in the same moment, and for jobs
        that got another owner just now."""
        planned = self.plans[name][-1] if self.plans[name] else None
        own = self.entry(job)
        if planned is None or own.holds is None:
            self.broken("Q2", job.id, f"{name} requested a slice without a plan")
        settings = planned.settings
        others = [self.entry(j) for j in self.jobs.values() if not j.state.final]
        holds = [(o, o.holds) for o in others if o.holds is not None]
        slice = wanted(job.slices[-1])
        of_owner = [(o, h) for o, h in holds if o.owner == own.owner]
        of_type = [(o, h) for o, h in of_owner if h.type == slice.type]
        beside = [(b, b.holds) for o in others for b in o.beside if b.holds is not None]
        by_owner = [(o, h) for o, h in (*holds, *beside) if o.owner == own.owner]
        by_type = [(o, h) for o, h in by_owner if h.type == slice.type]
        of_pool = [(o, h) for o, h in (*holds, *beside) if h.pool == slice.pool]
        of_group = [(o, h) for o, h in holds if o.group == own.group]
        typed = settings.by_type.get(slice.type)
        rows: list[tuple[str, list[tuple[QueueEntry, Any]], int | None, bool]] = [
            ("jobs of its owner", of_owner, settings.limits.running, False),
            ("chips of its owner", by_owner, settings.limits.chips, True),
            (f"jobs on {slice.type}", of_type, typed.running if typed else None, False),
            (f"chips of {slice.type}", by_type, typed.chips if typed else None, True),
            (f"chips of {slice.pool}", of_pool, settings.quota.get(slice.pool), True),
            ("elements of its group", of_group, self._at_once(job), False),
        ]
        for noun, holders, limit, chips in rows:
            seen = [(o, h) for o, h in holders if o.id == own.id or not self._unseen(name, o.id)]
            seen = [(o, h) for o, h in seen if o.id == own.id or not self.unread(o.id, AGAIN)]
            seen = [(o, h) for o, h in seen if o.id == own.id or not self._got_an_owner(o.id)]
            count = sum(h.chips if chips else 1 for _, h in seen)
            if limit is not None and count > limit:
                ids = ", ".join(o.id for o, _ in seen)
                self.broken("Q8", job.id, f"{count} {noun} are held or requested of {limit}: {ids}")

    def _got_an_owner(self, job_id: str) -> bool:
        """Return whether a job was handed over just now, which a backend may not know: also the one that wrote it, if
        the reply was lost."""
        return job_id in self.inherited and self._age(job_id) <= KNOWN

    def _at_once(self, job: Job) -> int | None:
        group = self.jobs.get(job.group)
        return at_once(group.spec) if group else None

    def _unseen(self, name: str, job_id: str) -> bool:
        """Return whether that backend could plan without knowing that the job got a slice."""
        by, at = self.asked.get(job_id, ("", 0.0))
        planned = min(self.plans[name][-1].now, self.read.get(name, 0.0))
        return by != name and at > planned - KNOWN

    # As `capacity.Others`, of the records -----------------------------------------------------------------------------

    def end(self, job_id: str) -> JobEnd | None:
        job = self.jobs.get(job_id)
        if job is None or not job.spec.is_group:
            return facts_of(job) if job else None
        begun = [facts_of(j).started for j in self.jobs.values() if j.group == job.id]
        first = min((at for at in begun if at is not None), default=None)
        return JobEnd(job.state, first, job.finished_at)

    def element(self, group: str, index: int) -> str | None:
        return self._elements.get((group, index))

    def group(self, group: str) -> tuple[str, int] | None:
        head = self.jobs.get(group)
        limit = at_once(head.spec) if head else None
        return None if head is None or limit is None else (head.name, limit)

    # What must come soon ----------------------------------------------------------------------------------------------

    def overdue(self) -> Iterator[tuple[str, str, bool, str]]:
        """Yield rule, job, whether the fault exists now, and its text for the case that it lasts."""
        for job in self.jobs.values():
            needed = (job.id, job.group, *(edge.job for edge in job.edges))
            if job.state.final or job.spec.is_group or any(self.unread(n, 900) for n in needed):
                continue
            if job.edges:
                waits = job.state is State.QUEUED and not job.slices
                never = [
                    (other, on)
                    for other, on, state in (
                        rules.met_edges(self.entry(job), self) if waits else ()
                    )
                    if state is Met.NEVER
                ]
                other, on = never[0] if never else ("", "")
                text = f"still waits for the {on} of {other}, which cannot be any more"
                yield "Q10", job.id, bool(never) and job.desired is DesiredState.RUN, text
            if job.hold_until is not None and job.state is State.RELEASING:
                over = job.slice is not None and job.slice.delete_asked_at is None
                text = "keeps its slice beyond its time, or while its owner's jobs wait in vain"
                in_vain = job.hold_until < self.sim.now or self._waits_in_vain(job)
                yield "Q5", job.id, over and in_vain, text
            if job.group:
                goes_on = job.group in self.cancelled and job.desired is DesiredState.RUN
                yield "Q13", job.id, goes_on, f"goes on, and its group {job.group} was cancelled"

    def _waits_in_vain(self, keeper: Job) -> bool:
        """Return whether another job of the owner may request nothing, or was refused."""
        newest = [plans[-1] for plans in self.plans.values() if plans]
        planned = max(newest, key=lambda planned: planned.now, default=None)
        for entry_ in planned.entries if planned else ():
            place = planned.plan.places.get(entry_.id) if planned else None
            if place and place.position and entry_.owner == keeper.submitter and not place.ask:
                return True
        return False

    def retried_at(self, name: str, job_id: str) -> float:
        """Return until when that backend puts off the job's next request; 0: it does not."""
        plan = self.plans[name][-1].plan if self.plans[name] else None
        place = plan.places.get(job_id) if plan else None
        retries = (
            [r.until or 0.0 for r in place.reasons if r.kind is ReasonKind.RETRY] if place else []
        )
        return max(retries, default=0.0)

    # Slices that fall free --------------------------------------------------------------------------------------------

    def handed_on(self, giver: Job, heir: Job) -> None:
        """Q6: a slice is handed to a job that it fits, when no rule forbids it."""
        took = heir.slices[-1]
        gave = next(slice for slice in giver.slices if slice.name == took.name)
        same = [(s.type, s.zone, s.pricing, s.system_image, s.tpu_slices) for s in (gave, took)]
        if same[0] != same[1]:
            self.broken("Q6", heir.id, f"{took.name} was handed on as {same[1]}, and is {same[0]}")
        if heir.desired is not DesiredState.RUN or not (giver.spec.hand_on and heir.spec.hand_on):
            self.broken("Q6", heir.id, f"{took.name} was handed on to a job that is not to have it")
        if _left(giver) < (heir.spec.tpu.run_for or 0):
            self.broken("Q6", heir.id, f"{took.name} was handed on, and ends before it is needed")

    def deleting(self, name: str, job: Job, slice: Slice, seen: SliceSeen | None) -> None:
        """Q15: no slice that a job waits for is deleted before an attempt to hand it on."""
        if (
            job.state is not State.RELEASING
            or not self.plans[name]
            or job.slice is None
            or job.slice.name != slice.name
            or job.next_state not in rules.ENDED_WELL
            or job.cause not in _HARMLESS
            or job.desired is not DesiredState.RUN
            or job.attempt is None
            or job.attempt.slice != slice.name
            or not job.spec.hand_on
            or self.plans[name][-1].settings.hand_on == "never"
            or job.slice.delete_asked_at is not None
            or job.slice.missing_since is not None
            or job.slice.epoch >= PASSED
            or slice.name in self.stops
            or self.sim.now - job.state_since > HANDED_WITHIN - 10
            or not isinstance(seen, Present)
            or seen.state is not SliceState.READY
            or seen.suspending
        ):
            return
        begun = self.ticked.get((name, job.id), 0.0)
        plans = [planned for planned in self.plans[name] if planned.now > begun - KNOWN]
        giver = self.entry(job)
        fits = self._hands_on(begun, _left(job))
        waiting = [set(rules.heirs(planned, giver, fits)) for planned in plans]
        heirs = set.intersection(*waiting) if len(waiting) > 1 else set()
        if heirs and any(planned.now <= begun for planned in plans):
            text = f"{slice.name} is deleted, while {', '.join(sorted(heirs))} waits for the same"
            self.broken("Q15", job.id, text)

    def _hands_on(self, begun: float, left: float) -> Callable[[str], bool]:
        def fits(job_id: str) -> bool:
            job = self.jobs.get(job_id)
            return (
                job is not None
                and job.spec.hand_on
                and not job.beside
                and job.desired is DesiredState.RUN
                and job.spec.budget is None
                and not job.data
                and left >= (job.spec.tpu.run_for or 0)
                and self.changed.get(job_id, 0.0) < begun - KNOWN
            )

        return fits


def _left(giver: Job) -> float:
    """Return the seconds that were left of its newest slice when its present state began."""
    ends_at = giver.slices[-1].ends_at
    return math.inf if ends_at is None else ends_at - giver.state_since
