"""What a user wants of a job that is there: to cancel, resume, delete or clean it. The reconciler carries it out."""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from tpujob.domain.access import Principal
from tpujob.domain.events import BudgetChanged, CleanRequested, EventKind
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import DesiredState, Job
from tpujob.domain.money import budget as money
from tpujob.domain.observations import Funds
from tpujob.domain.text import dollars
from tpujob.errors import BadRequest, Conflict, IllegalInState, NotFound
from tpujob.ports import Clock, Store
from tpujob.service.actions import check_resumable
from tpujob.service.authorization import find_job
from tpujob.service.money import budgets

#: how often a wish is written again when the reconciler wrote first
TRIES = 8


class JobActions:
    """Writes wishes into records. Each returns the job as stored; raises NotFound, Forbidden, BadRequest and, when
    others always write first, Conflict."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        prices: PriceList,
        funds: Callable[[Job], Funds],
        tell: Callable[[Job], None],
        stopping: Callable[[Job], Sequence[str]],
    ) -> None:
        """`tell` is called with each job that was changed. `stopping`: the elements of a group that go on, and were
        cancelled."""
        self._stopping = stopping
        self._store, self._clock, self._prices = store, clock, prices
        self._funds, self._tell = funds, tell

    def cancel(self, who: Principal, job: str, *, release: bool = False) -> Job:
        kind = EventKind.RELEASE_REQUESTED if release else EventKind.CANCEL_REQUESTED
        text = "cancel requested, with release of the slice" if release else "cancel requested"
        return self._wish(
            who, "cancel", job, kind, text, lambda j: _keep_final(j) or _already(j, release=release)
        )

    def delete(self, who: Principal, job: str) -> Job:
        def settled(j: Job) -> bool:
            return _keep_final(j) or _already(j, release=True)

        kind = EventKind.RELEASE_REQUESTED
        return self._wish(who, "delete", job, kind, "delete requested", settled)

    def clean(self, who: Principal, job: str, *, checkpoints: bool = False) -> Job:
        def settled(j: Job) -> bool:
            return j.wish is DesiredState.CLEAN and j.wipe_checkpoints == checkpoints

        text = "clean requested" + (", with its checkpoints" if checkpoints else "")
        kind, payload = EventKind.CLEAN_REQUESTED, CleanRequested(checkpoints)
        return self._wish(who, "clean", job, kind, text, settled, payload)

    def resume(self, who: Principal, job: str, *, budget: float | None = None) -> Job:
        def settled(j: Job) -> bool:
            check_resumable(j)
            going = j.wish is DesiredState.RUN and not j.state.final and not j.spec.is_group
            if not going:
                budgets.check_resume(j, self._funds(j), self._prices, self._clock.now())
            return going

        found = find_job(self._store, who, "resume", job)
        if budget is not None:
            _check_single(found)
            self._change_budget(who, job, budget)
        group = self._store.get(found.group) if found.group else None
        if group and group.wish is not DesiredState.RUN:
            raise IllegalInState(
                f"its group {group.name} was cancelled",
                hint=f"`tpujob resume {group.id}` sets all of it going again.",
            )
        kind, text = EventKind.RESUME_REQUESTED, "resume requested"
        stored = self._wish(who, "resume", found.id, kind, text, settled)
        if group and group.state.final:  # it ends again, after this one
            self._wish(who, "resume", group.id, kind, text, lambda j: not j.state.final)
        # the group sets those going again that have ended
        for element in self._stopping(stored) if stored.spec.is_group else ():
            with contextlib.suppress(IllegalInState, NotFound):
                self._wish(who, "resume", element, kind, f"resumed with {stored.name}", settled)
        return stored

    def _change_budget(self, who: Principal, job: str, usd: float) -> None:
        limit = budgets.limit(usd)

        def known(j: Job) -> bool:
            check_resumable(j)
            changed = replace(j, spend_limit=limit)
            budgets.check_resume(changed, self._funds(j), self._prices, self._clock.now())
            return money.limit(j) == limit

        text = f"the budget is {dollars(limit)}"
        self._wish(who, "resume", job, EventKind.BUDGET_CHANGED, text, known, BudgetChanged(limit))

    def _wish(
        self,
        who: Principal,
        method: str,
        job: str,
        kind: EventKind,
        text: str,
        settled: Callable[[Job], bool],
        payload: CleanRequested | BudgetChanged | None = None,
    ) -> Job:
        """Write the user's wish into the record, trying again when another write was first. A wish that is settled
        already changes nothing."""
        for _ in range(TRIES):
            found = find_job(self._store, who, method, job)
            if settled(found):
                return found
            asked = event(found, kind, self._clock.now(), text, payload, by=who.name)
            try:
                stored = self._store.commit(
                    apply(found, asked),
                    asked,
                    expected_version=found.version,
                    op_id=uuid.uuid4().hex,
                    lease=None,
                )
            except Conflict:
                continue
            self._tell(stored)
            return stored
        raise Conflict(
            f"job {job} could not be changed: other changes came first, {TRIES} times in a row",
            hint="Try again in a moment.",
        )


def _check_single(job: Job) -> None:
    if job.spec.is_group:
        raise BadRequest(
            "the budget of a group is that of each of its elements",
            hint="`tpujob resume NAME-INDEX --budget USD` raises that of one.",
        )


def _keep_final(job: Job) -> bool:
    """A job that has ended stays as it ended."""
    return job.state.final


def _already(job: Job, *, release: bool) -> bool:
    return job.wish in (
        (DesiredState.RELEASE, DesiredState.CLEAN)
        if release
        else (DesiredState.CANCEL, DesiredState.RELEASE, DesiredState.CLEAN)
    )
