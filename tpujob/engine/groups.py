"""Arrays and sweeps: the states of their elements in memory, requests to them, and how they are made."""

import hashlib
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from tpujob.domain.capacity.dependencies import facts_of
from tpujob.domain.codec import to_text
from tpujob.domain.decide.group import NAMED
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
#: events by which a job gets a slice
GETS = (EventKind.SLICE_REQUESTED, EventKind.CANDIDATE_REQUESTED, EventKind.SLICE_RECEIVED)
#: ends after which an element is set going again with its group
STOPPED = (State.FAILED, State.CANCELLED)


class GroupMember(NamedTuple):
    """An element, reduced to what its group needs of it."""

    id: str
    name: str
    state: State
    ended_at: float | None
    fresh_at: float  #: when it was last resumed


class Groups:
    """Thread-safe. Reads all records once, for the first group; later changes arrive by `note`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self._members = defaultdict[str, dict[int, GroupMember]](dict)  #: by group and index
        self._places: dict[str, tuple[str, int]] = {}  #: group and index of each element
        self._going = Counter[str]()  #: of groups, how many elements have not ended
        self._made: dict[str, int] = {}  #: of groups, how many elements were made
        self._begun: dict[str, float] = {}  #: of groups, when an element first ran
        self._desired: dict[str, DesiredState] = {}  #: of groups, as they were last seen
        self._read = False
        #: called with the id of a job that has something to do
        self.news: Callable[[str], None] = lambda _: None

    # Look ------------------------------------------------------------------------------------------------------------

    def observe(self, job: Job, seen: Observation) -> Observation:
        """Return the observation with what a group sees of its elements, or an element of its group."""
        if job.spec.is_group:
            members = self.members(job)
            failed = [member.name for member in members if member.state is State.FAILED]
            counts = Counter(member.state for member in members)
            if len(members) < job.submitted and all(state.final for state in counts):
                counts[State.QUEUED] += self._unread(job)
            behind = any(_is_behind(job, member) for member in members)
            return replace(seen, elements=counts, failed=tuple(failed[:NAMED]), behind=behind)
        if not job.group or job.state.final:
            return seen
        try:
            return replace(seen, group_desired=self._store.peek(job.group).desired)
        except NotFound:
            return replace(seen, group_desired=DesiredState.RELEASE)
        except DamagedRecord:  # what runs goes on; `check` raises, so nothing starts
            return seen

    def _unread(self, group: Job) -> int:
        """Return how many elements perhaps have not ended, as their records cannot be read, or could not before. A
        record that was removed counts as ended."""
        if damaged := len(self._store.damaged()):
            return damaged
        for element in self._store.list(live=True):
            self.note(element)
        return sum(not member.state.final for member in self.members(group))

    def check(self, job: Job, happened: Event) -> None:
        """Raises Conflict when a slice is for an element whose group was cancelled or held meanwhile."""
        group = self._store.get(job.group) if job.group and happened.kind in GETS else None
        if group and (group.desired is not DesiredState.RUN or group.held_by):
            raise Conflict(f"the group of job {job.id} was cancelled or held")

    def members(self, group: Job) -> list[GroupMember]:
        """Return the elements that exist, in their order."""
        with self._lock:
            self._read_all()
            return [member for _, member in sorted(self._members[group.id].items())]

    def element(self, group: str, index: int) -> str | None:
        """Return the job of that index (`capacity.Others`)."""
        with self._lock:
            self._read_all()
            member = self._members[group].get(index)
            removed = index < self._made.get(group, 0)
        return member.id if member else "" if removed else None

    def resumes(self, job_id: str, live: Mapping[str, Job]) -> bool:
        """Return whether a job that has ended will be resumed with its group in a moment."""
        with self._lock:
            self._read_all()
            of, index = self._places.get(job_id, ("", 0))
            group = live.get(of)
            if group is None or group.desired is not DesiredState.RUN:
                return False
            return _is_behind(group, self._members[of][index])

    def begun(self, group: str) -> float | None:
        """Return when an element first ran; None: none has."""
        with self._lock:
            self._read_all()
            return self._begun.get(group)

    # Kept current ----------------------------------------------------------------------------------------------------

    def _read_all(self) -> None:
        if not self._read:
            for job in self._store.walk():
                self.note(job)
            self._read = True

    def forget(self, job_id: str) -> None:
        """Remove what is known of a record that was deleted."""
        with self._lock:
            group, index = self._places.pop(job_id, ("", 0))
            if (member := self._members[group].pop(index, None)) and not member.state.final:
                self._going[group] -= 1

    def note(self, job: Job) -> None:
        """Note the job's current state, and wake the elements or the group that it affects."""
        with self._lock:
            if job.spec.is_group:
                turned = self._desired.get(job.id, DesiredState.RUN) is not job.desired
                self._desired[job.id] = job.desired
                self._made[job.id] = job.submitted
                for member in self._members[job.id].values() if turned else ():
                    if not member.state.final:
                        self.news(member.id)
            elif job.group and job.index is not None:
                members = self._members[job.group]
                known = members.get(job.index)
                went = known is not None and not known.state.final
                self._going[job.group] += (not job.state.final) - went
                members[job.index] = GroupMember(
                    job.id, job.name, job.state, job.finished_at, job.fresh_at
                )
                self._places[job.id] = job.group, job.index
                if (started := facts_of(job).started) is not None:
                    self._begun[job.group] = min(started, self._begun.get(job.group, inf))
                if job.state.final and not self._going[job.group]:
                    self.news(job.group)

    # Elements --------------------------------------------------------------------------------------------------------

    def make(self, group: Job, first: int, count: int) -> int:
        """Store elements from `first` on, as many as one commit holds, and return their number. A repeat returns the
        same number, although elements of the first call may have been removed since: the number depends on no time."""
        batch = list(elements(group.spec, first, count))
        timeless, _ = _element(group, batch[0], 0.0)
        batch = batch[: max(1, BYTES // len(to_text(timeless)))]
        now = self._clock.now()
        key = f"group:{group.id}:{group.suffix}:{first}"
        for job in self._store.create_many([_element(group, e, now) for e in batch], key=key):
            self.note(job)
            self.news(job.id)
        return len(batch)

    def resume(self, group: Job) -> None:
        """Resume the elements that had ended before their group was resumed. Raises Conflict."""
        behind = [member.id for member in self.members(group) if _is_behind(group, member)]
        for job_id in behind[:RESUMED]:
            job = self._store.get(job_id)
            if not job.state.final or job.fresh_at >= group.fresh_at:
                self.note(job)  # another backend has resumed it
                continue
            text = f"resumed with its group {group.name}"
            at = max(self._clock.now(), group.fresh_at)
            request = event(job, EventKind.RESUME_REQUESTED, at, text)
            stored = self._store.commit(
                apply(job, request),
                request,
                expected_version=job.version,
                op_id=f"resume:{group.id}:{group.fresh_at}",
                lease=None,
            )
            if stored.version > job.version:  # else another backend has, with the same key
                self.note(stored)
            self.news(stored.id)


def _is_behind(group: Job, member: GroupMember) -> bool:
    """Return whether it failed or was cancelled before its group was resumed, and was not resumed since."""
    stopped = member.state in STOPPED and member.fresh_at < group.fresh_at
    return stopped and (member.ended_at or 0.0) <= group.fresh_at


def _element(group: Job, element: Element, now: float) -> tuple[Job, Event]:
    """Return the first record of an element, and its first event. Its word is a function of the group's, which is
    random."""
    text = f"{group.user} submitted {element.spec.name}, element {element.index} of {group.name}"
    word = hashlib.sha256(f"{group.suffix}:{element.index}".encode()).hexdigest()[:8]
    job = replace(
        group,
        id="",
        name=element.spec.name,
        spec=element.spec,
        version=1,
        created_at=now,
        state_since=now,
        wake=now,
        fresh_at=0.0,
        idle_periods=(),
        submitted=0,
        held_by="",  # as with the group's rank, that is the whole group's
        queued_at=0.0,
        rank=0,
        group=group.id,
        index=element.index,
        params=element.params,
        suffix=word if group.suffix else "",
        message=text,
    )
    return job, Event(EventKind.CREATED, now, State.QUEUED, text)
