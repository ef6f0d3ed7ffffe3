"""Arrays and sweeps in this process: how the elements of each group stand, what is asked of them, how they are made."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tpujob.domain.codec import to_text
from tpujob.domain.decide import group as rules
from tpujob.domain.events import Event, EventKind
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import DesiredState, Job, State
from tpujob.domain.observations import Observation
from tpujob.domain.spec.elements import Element, elements
from tpujob.errors import Conflict, DamagedRecord, NotFound
from tpujob.ports import Clock, Store

#: bytes of the records that are stored at once
BYTES = 4 * 2**20
#: elements that are resumed in one round
RESUMED = 100


class GroupMember(NamedTuple):
    """An element, as far as its group is concerned with it."""

    id: str
    name: str
    state: State
    ended_at: float | None


@dataclass(slots=True)
class GroupElements:
    """The elements of one group, by index."""

    members: dict[int, GroupMember] = field(default_factory=dict[int, GroupMember])
    states: Counter[State] = field(default_factory=Counter[State])
    wish: DesiredState = DesiredState.RUN  #: as the group's record was last seen

    def put(self, index: int, member: GroupMember | None) -> None:
        """Keep it in the place of an older one. None: it was removed."""
        old = self.members.pop(index, None)
        if old:
            self.states[old.state] -= 1
        if member:
            self.members[index] = member
            self.states[member.state] += 1

    @property
    def going(self) -> int:
        return sum(n for state, n in self.states.items() if not state.final)

    def some(self, state: State, most: int) -> list[GroupMember]:
        """The first of those in that state."""
        if not self.states[state]:
            return []
        found = sorted(n for n, member in self.members.items() if member.state is state)
        return [self.members[n] for n in found[:most]]

    def behind(self, job: Job) -> list[GroupMember]:
        """Those that had failed, or were cancelled, before the group `job` was resumed."""
        stopped = (State.FAILED, State.CANCELLED)
        if not job.fresh_at or not any(self.states[state] for state in stopped):
            return []
        return [
            member
            for member in self.members.values()
            if member.state in stopped and (member.ended_at or 0.0) <= job.fresh_at
        ]


class Groups:
    """Thread-safe. Reads all records once, at the first group or element; after that those that have changed."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self._groups: dict[str, GroupElements] = {}
        self._places: dict[str, tuple[str, int]] = {}  #: group and index of each element
        self._change: int | None = None  #: the newest that was read; None: none yet
        #: called with the id of a job that has something to do
        self.news: Callable[[str], None] = lambda _: None

    # Look ------------------------------------------------------------------------------------------------------------

    def observe(self, job: Job, seen: Observation) -> Observation:
        """The same, with what a group sees of its elements, or an element of its group."""
        if job.spec.is_group:
            with self._lock:
                self._refresh()
                known = self._groups.get(job.id) or GroupElements()
                failed = known.some(State.FAILED, rules.NAMED)
                return replace(
                    seen,
                    elements=dict(known.states),
                    failed=tuple(member.name for member in failed),
                    behind=len(known.behind(job)),
                )
        if not job.group or job.state.final:
            return seen
        try:
            group = self._store.peek(job.group)
        except NotFound:
            return replace(seen, group_wish=DesiredState.RELEASE)
        return replace(seen, group_wish=group.wish)

    def check(self, job: Job, happened: Event) -> None:
        """Raises Conflict for the request for a slice of an element whose group was cancelled meanwhile."""
        asks = job.group and happened.kind is EventKind.SLICE_REQUESTED
        if asks and self._store.get(job.group).wish is not DesiredState.RUN:
            raise Conflict(f"the group of job {job.id} was cancelled")

    # Kept current ----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        newest = self._store.newest()
        if self._change is None or newest < self._change:
            self._groups, self._places = {}, {}
            for job in self._store.walk():
                self.note(job)
            self._change = newest
            return
        newest, ids = self._store.changes(self._change)
        for job_id in ids:
            try:
                self.note(self._store.peek(job_id))
            except NotFound:
                self._forget(job_id)
            except DamagedRecord:
                continue
        self._change = newest

    def note(self, job: Job) -> None:
        """This is how the job stands now."""
        if not job.group and not job.spec.is_group:
            return
        with self._lock:
            known = self._groups.setdefault(job.group or job.id, GroupElements())
            if job.spec.is_group:
                turned, known.wish = known.wish is not job.wish, job.wish
                if turned and job.wish is not DesiredState.RUN:
                    for one in known.members.values():
                        if not one.state.final:
                            self.news(one.id)
                return
            assert job.index is not None
            member = GroupMember(job.id, job.name, job.state, job.finished_at)
            known.put(job.index, member)
            self._places[job.id] = job.group, job.index
            if job.state.final and not known.going:
                self.news(job.group)

    def _forget(self, job_id: str) -> None:
        group, index = self._places.pop(job_id, ("", 0))
        if group in self._groups:
            self._groups[group].put(index, None)
        self._groups.pop(job_id, None)

    # Elements --------------------------------------------------------------------------------------------------------

    def make(self, group: Job, first: int, count: int) -> int:
        """Store elements from `first` on, as many as fit into one commit, and return how many are there."""
        now = self._clock.now()
        new = [_element(group, one, now) for one in elements(group.spec, first, count)]
        fit = max(1, BYTES // len(to_text(new[0][0])))
        key = f"group:{group.id}:{group.word}:{first}"
        stored = self._store.create_many(new[:fit], key=key)
        for job in stored:
            self.note(job)
            self.news(job.id)
        return len(stored)

    def resume(self, group: Job) -> None:
        """Set elements going again that had ended before their group was resumed. Raises Conflict."""
        with self._lock:
            behind = self._groups[group.id].behind(group)[:RESUMED]
        for member in behind:
            job = self._store.get(member.id)
            if not job.state.final or job.state is State.SUCCEEDED:
                continue
            text = f"resumed with its group {group.name}"
            asked = event(job, EventKind.RESUME_REQUESTED, self._clock.now(), text)
            stored = self._store.commit(
                apply(job, asked),
                asked,
                expected_version=job.version,
                op_id=f"resume:{group.id}:{group.fresh_at}",
                lease=None,
            )
            self.note(stored)
            self.news(stored.id)

    def members(self, group: Job) -> list[str]:
        """Ids of the elements that there are."""
        with self._lock:
            self._refresh()
            known = self._groups.get(group.id) or GroupElements()
            return [member.id for member in known.members.values()]


def _element(group: Job, one: Element, now: float) -> tuple[Job, Event]:
    """The first record of an element, and its first event. Its word follows from the group's, which is random."""
    text = f"{group.user} asked for {one.spec.name}, element {one.index} of {group.name}"
    word = hashlib.sha256(f"{group.word}:{one.index}".encode()).hexdigest()[:8]
    job = replace(
        group,
        id="",
        name=one.spec.name,
        spec=one.spec,
        version=1,
        created_at=now,
        state_since=now,
        wake=now,
        fresh_at=0.0,
        rests=(),
        submitted=0,
        group=group.id,
        index=one.index,
        params=one.params,
        word=word if group.word else "",
        message=text,
    )
    return job, Event(EventKind.CREATED, now, State.QUEUED, text)
