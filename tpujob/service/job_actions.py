"""Requests of a user about an existing job: cancel, resume, delete, clean, and its place in the queue. The reconciler
carries them out."""

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tpujob.domain import access, annotations
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.domain.capacity.dependencies import Met, check_edge, facts_of
from tpujob.domain.events import (
    Annotation,
    BudgetChanged,
    CleanRequested,
    EventKind,
    HandedOver,
    Payload,
    QueueMoved,
)
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import Cause, DesiredState, Edge, Job, State
from tpujob.domain.money import budget as money
from tpujob.domain.observations import Funds
from tpujob.domain.text import dollars
from tpujob.errors import BadRequest, Conflict, Forbidden, IllegalInState, NotFound
from tpujob.ports import Clock, Store
from tpujob.service.authorization import find_job
from tpujob.service.backend.queue import still_waiting, waits_for
from tpujob.service.money import budgets
from tpujob.service.next_step import lacks_dependency
from tpujob.service.offered_actions import check_resumable

#: how often a request is written again when the reconciler wrote first
TRIES = 8


class JobActions:
    """Writes what users request into records. Each method returns the job as stored; raises NotFound, Forbidden,
    BadRequest, IllegalInState and, when other writes always come first, Conflict."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        prices: PriceList,
        funds: Callable[[Job], Funds],
        tell: Callable[[Job], None],
        stopping: Callable[[Job], Sequence[str]],
        live: Callable[[], Mapping[str, Job]],
        ended_by: Callable[[Cause], Iterable[str]],
    ) -> None:
        """`tell` is called with each job that was changed. `stopping`: the active elements of a group that were
        cancelled. `live`: the jobs that have not ended. `ended_by`: ids of those that have ended for a cause."""
        self._stopping = stopping
        self._store, self._clock, self._prices = store, clock, prices
        self._funds, self._tell = funds, tell
        self._live, self._ended_by = live, ended_by

    def cancel(self, caller: Principal, job: str, *, release: bool = False) -> Job:
        kind = EventKind.RELEASE_REQUESTED if release else EventKind.CANCEL_REQUESTED
        text = "cancel requested, with release of the slice" if release else "cancel requested"
        return self._request(
            caller, "cancel", job, kind, text, lambda j: _already(j, release=release)
        )

    def delete(self, caller: Principal, job: str) -> Job:
        kind, text = EventKind.RELEASE_REQUESTED, "delete requested"
        return self._request(caller, "delete", job, kind, text, lambda j: _already(j, release=True))

    def clean(self, caller: Principal, job: str, *, checkpoints: bool = False) -> Job:
        def settled(j: Job) -> bool:
            # a waiting job of another user would let that user keep the record, its logs and its code
            live = [
                live_job
                for live_job in self._live().values()
                if access.sees_all(caller, live_job.owner)
            ]
            if waiting := still_waiting(live, j, lambda other: self._is_element(other, j)):
                ids = ", ".join(waiting[:10]) + (" ..." if len(waiting) > 10 else "")
                raise IllegalInState(
                    f"job {j.id} cannot be removed: without it, {ids} would never start",
                    hint=f"`tpujob delete {' '.join(waiting[:10])}` ends those jobs.",
                )
            return j.desired is DesiredState.CLEAN and j.wipe_checkpoints == checkpoints

        text = "clean requested" + (", with its checkpoints" if checkpoints else "")
        kind, payload = EventKind.CLEAN_REQUESTED, CleanRequested(checkpoints)
        return self._request(caller, "clean", job, kind, text, settled, payload)

    def _is_element(self, job_id: str, of: Job) -> bool:
        try:
            return of.spec.is_group and self._store.peek(job_id).group == of.id
        except NotFound:
            return False

    def resume(self, caller: Principal, job: str, *, budget: float | None = None) -> Job:
        def settled(j: Job) -> bool:
            check_resumable(j)
            going = j.desired is DesiredState.RUN and not j.state.final and not j.spec.is_group
            if not going:
                budgets.check_resume(j, self._funds(j), self._prices, self._clock.now())
            return going

        record = find_job(self._store, caller, "resume", job)
        group = self._store.get(record.group) if record.group else None
        if group and group.desired is not DesiredState.RUN:
            raise IllegalInState(
                f"its group {group.name} was cancelled",
                hint=f"`tpujob resume {group.id}` resumes all of it.",
            )
        if budget is not None:
            if record.spec.is_group:
                raise BadRequest(
                    "the budget of a group is that of each of its elements",
                    hint="`tpujob resume NAME-INDEX --budget USD` raises that of one.",
                )
            self._change_budget(caller, record.id, budget)
        kind, text = EventKind.RESUME_REQUESTED, "resume requested"
        stored = self._request(caller, "resume", record.id, kind, text, settled)
        self._reopen(caller, stored)
        # the group resumes the elements that have ended
        for element in self._stopping(stored) if stored.spec.is_group else ():
            with contextlib.suppress(IllegalInState, NotFound):
                self._request(
                    caller, "resume", element, kind, f"resumed with {stored.name}", settled
                )
        self._revive(Principal(BACKEND.id, caller.name, BACKEND.role), stored)
        return stored

    def _reopen(self, caller: Principal, resumed: Job) -> None:
        """Make a group that has ended active again, until the resumed element has ended."""
        if resumed.group:
            kind, why = EventKind.GROUP_REOPENED, f"{resumed.name} was resumed"
            self._request(caller, "resume", resumed.group, kind, why, lambda j: not j.state.final)

    def _revive(self, by: Principal, resumed: Job) -> None:
        """Resume jobs of any owner that ended because this one had failed, and those that waited for these. Safe to
        repeat."""
        ended = {job_id: self._store.peek(job_id) for job_id in self._ended_by(Cause.DEPENDENCY)}
        going = [resumed]
        while going:
            other = going.pop()
            text = f"resumed with job {other.id}, which it waits for"
            for job_id, job in [*ended.items()]:
                if not lacks_dependency(job) or not waits_for(job, other) or self._never(job):
                    continue
                del ended[job_id]
                kind = EventKind.RESUME_REQUESTED
                revived = self._request(
                    by, "resume", job_id, kind, text, lambda j: not lacks_dependency(j)
                )
                self._reopen(by, revived)
                going.append(revived)

    def _never(self, job: Job) -> bool:
        """Return whether a dependency of the job can never be met, so that it would end again at once."""
        edges = (edge for edge in job.edges if not edge.each)
        return any(self._met(edge) is Met.NEVER for edge in edges)

    def _met(self, edge: Edge) -> Met:
        try:
            return check_edge(edge, facts_of(self._store.peek(edge.job)))[0]
        except NotFound:
            return Met.NEVER

    # The queue --------------------------------------------------------------------------------------------------------

    def hold(self, caller: Principal, job: str) -> Job:
        def settled(j: Job) -> bool:
            _check_waits(j)
            own = access.is_own(caller, j.owner)  # which does not take an admin's hold over
            return bool(j.held_by) and (own or j.held_by == caller.name)

        return self._request(
            caller, "hold", job, EventKind.QUEUE_HELD, f"held by {caller.name}", settled
        )

    def release(self, caller: Principal, job: str) -> Job:
        def settled(j: Job) -> bool:
            _check_waits(j)
            if j.held_by not in ("", j.user, caller.name) and not caller.at_least(Role.ADMIN):
                raise Forbidden(
                    f"job {j.id} is held by {j.held_by}, so only an admin may release it",
                    hint=f"Ask {j.held_by}.",
                )
            group = self._store.get(j.group) if j.group and not j.held_by else None
            if group and group.held_by:
                hint = f"`tpujob queue release {group.id}` releases all of it."
                raise IllegalInState(f"job {j.id} is held with its group {group.name}", hint=hint)
            return not j.held_by

        kind, text = EventKind.QUEUE_RELEASED, f"released by {caller.name}"
        return self._request(caller, "release", job, kind, text, settled)

    def top(self, caller: Principal, job: str) -> Job:
        record = find_job(self._store, caller, "top", job)
        others = (j for j in self._live().values() if record.id not in (j.id, j.group))
        highest = max((j.rank for j in others if j.owner == record.owner), default=-1)

        def settled(j: Job) -> bool:
            _check_waits(j)
            return j.rank > highest

        text, moved = f"moved before {record.user}'s other jobs", QueueMoved(highest + 1)
        return self._request(caller, "top", record.id, EventKind.QUEUE_MOVED, text, settled, moved)

    def requeue(self, caller: Principal, job: str) -> Job:
        def settled(j: Job) -> bool:
            _check_waits(j)
            how = "a group" if j.spec.is_group else j.state
            if j.next_state is not State.QUEUED and j.state not in (State.PREPARING, State.RUNNING):
                raise IllegalInState(
                    f"job {j.id} is {how}: only a job whose program runs can be put back",
                    hint=f"`tpujob queue hold {j.id}` keeps it from requesting a slice.",
                )
            return j.next_state is State.QUEUED

        kind, text = EventKind.REQUEUE_REQUESTED, f"put back into the queue by {caller.name}"
        return self._request(caller, "requeue", job, kind, text, settled)

    def annotate(
        self,
        caller: Principal,
        job: str,
        *,
        note: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> Job:
        line = None if note is None else annotations.checked_note(note)
        for _ in range(TRIES):
            record = find_job(self._store, caller, "annotate", job)
            tags = annotations.changed_tags(record.tags, add, remove)
            wanted = Annotation(record.note if line is None else line, tags)
            if wanted == Annotation(record.note, record.tags):
                return record
            stored = self._commit(
                record, caller, EventKind.ANNOTATED, _annotated(record, wanted), wanted
            )
            if stored is not None:
                return stored
        raise _busy(job)

    def hand_over(self, caller: Principal, owner: str, to: Principal) -> None:
        """Make `to` the owner of all jobs of that owner. Safe to repeat."""
        for _ in range(TRIES):  # a group may make elements meanwhile
            jobs = [job for job in self._store.list() if job.owner == owner]
            for job in jobs:
                text = f"handed over from {job.user} to {to.name} by {caller.name}"
                with contextlib.suppress(NotFound):  # removed meanwhile
                    self._request(
                        caller, "remove_member", job.id, EventKind.HANDED_OVER, text,
                        lambda j: j.owner != owner, HandedOver(to.id, to.name),
                    )  # fmt: skip
            if not jobs:
                return

    # Writing ----------------------------------------------------------------------------------------------------------

    def _change_budget(self, caller: Principal, job: str, usd: float) -> None:
        limit = budgets.limit(usd)

        def settled(j: Job) -> bool:
            check_resumable(j)
            changed = replace(j, spend_limit=limit)
            budgets.check_resume(changed, self._funds(j), self._prices, self._clock.now())
            return money.limit(j) == limit

        text = f"the budget is {dollars(limit)}"
        self._request(
            caller, "resume", job, EventKind.BUDGET_CHANGED, text, settled, BudgetChanged(limit)
        )

    def _request(
        self,
        caller: Principal,
        method: str,
        job: str,
        kind: EventKind,
        text: str,
        settled: Callable[[Job], bool],
        payload: Payload | None = None,
    ) -> Job:
        """Write the user's request into the record, again when another write came first; nothing if it is there
        already."""
        for _ in range(TRIES):
            record = find_job(self._store, caller, method, job)
            if settled(record):
                return record
            stored = self._commit(record, caller, kind, text, payload)
            if stored is not None:
                return stored
        raise _busy(job)

    def _commit(
        self, record: Job, caller: Principal, kind: EventKind, text: str, payload: Payload | None
    ) -> Job | None:
        """Return the job after the event; None: another write came first."""
        request = event(record, kind, self._clock.now(), text, payload, by=caller.name)
        try:
            stored = self._store.commit(
                apply(record, request),
                request,
                expected_version=record.version,
                op_id=uuid.uuid4().hex,
                lease=None,
            )
        except Conflict:
            return None
        self._tell(stored)
        return stored


def _busy(job: str) -> Conflict:
    return Conflict(
        f"job {job} could not be changed: other changes came first, {TRIES} times in a row",
        hint="Try again in a moment.",
    )


def _annotated(job: Job, new: Annotation) -> str:
    """Return what changes, in one line."""
    added, removed = sorted({*new.tags} - {*job.tags}), sorted({*job.tags} - {*new.tags})
    parts = [
        f"tagged {', '.join(added)}" if added else "",
        f"not tagged {', '.join(removed)} any more" if removed else "",
    ]
    if new.note != job.note:
        parts.append(f"noted: {new.note}" if new.note else "the note was removed")
    return "; ".join(filter(None, parts))


def _check_waits(job: Job) -> None:
    """Raises IllegalInState for a job that will not be in the queue again."""
    if job.state.final or job.desired is not DesiredState.RUN:
        how = f"has ended ({job.state})" if job.state.final else f"is asked to {job.desired}"
        again = f"`tpujob resume {job.id}` puts it there."
        raise IllegalInState(
            f"job {job.id} {how}: it is not in the queue",
            hint="" if job.state is State.SUCCEEDED else again,
        )


def _already(job: Job, *, release: bool) -> bool:
    """Return whether a cancel would change nothing. A job that has ended stays as it ended."""
    compatible = (DesiredState.RUN, DesiredState.CANCEL) if release else (DesiredState.RUN,)
    return job.state.final or job.desired not in compatible
