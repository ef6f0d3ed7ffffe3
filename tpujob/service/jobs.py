"""The service behind `JobsApi`: what a user can ask of jobs. The reconciler carries it out."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, cast

from tpujob.api import (
    CallerView,
    CodeGiven,
    DiffView,
    EventView,
    HostAccess,
    JobsApi,
    JobView,
    LogPage,
    MemberView,
    PlanView,
    SecretView,
    SpendingView,
)
from tpujob.domain import access
from tpujob.domain.access import BACKEND, Principal
from tpujob.domain.events import BudgetChanged, CleanRequested, EventKind
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import Job, Slice, State, Wish
from tpujob.domain.money import Surroundings
from tpujob.domain.money import budget as money
from tpujob.domain.observations import NO_FUNDS, Account, Circuit, Funds
from tpujob.domain.placement import EVERYWHERE, Site
from tpujob.domain.placement import circuits as capacity
from tpujob.domain.text import dollars
from tpujob.engine import Bundles, Live, Loop
from tpujob.errors import Conflict, IllegalInState, NotFound
from tpujob.ports import Blobs, Clock, Copies, Secrets, Store
from tpujob.service import logs as log_reader
from tpujob.service.admin import Admin
from tpujob.service.allowed import Allowed, find_job, number_of, own_key
from tpujob.service.changes import Changes
from tpujob.service.diff import compare
from tpujob.service.members import Membership
from tpujob.service.money import budgets
from tpujob.service.money.comparison import Comparisons
from tpujob.service.money.cost import Costs
from tpujob.service.money.estimate import Estimates
from tpujob.service.secrets import OwnSecrets
from tpujob.service.submission import Offered, Submission, nobody_knows
from tpujob.service.views import event_view, job_view

#: seconds to read the next page of a log
ANSWER = 15.0
#: how often a user's command is written again when the reconciler wrote first
TRIES = 8


class Jobs:
    """Implements `api.JobsApi` in the backend's own process; what comes before a job and what is about no single job
    are the methods of `Submission` and `Admin`."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        clock: Clock,
        *,
        who: Principal = BACKEND,
        admin: Admin,
        members: Membership,
        copies: Copies,
        secrets: Secrets,
        site: Site = EVERYWHERE,
        access: Callable[[Slice, int, str, str], HostAccess],
        trust: Callable[[Slice], str] = lambda _: "",
        loop: Loop,
        changes: Changes,
        live: Mapping[str, Live],
        circuits: Callable[[], Mapping[str, Circuit]] = dict,
        funds: Callable[[Job], Funds] = lambda _: NO_FUNDS,
        accounts: Callable[[], Sequence[Account]] = tuple,
        offered: Offered = nobody_knows,
        owner: str = "local",
        around: Surroundings = Surroundings(),  # noqa: B008
    ) -> None:
        """`who`: for whom; `acting_for` makes one for somebody else. `live`: what the reconciler knows of each job
        beyond its record. `circuits`: the offers that were refused lately, for all jobs. `funds`: what budgets depend
        on beside a job's record. `accounts`: of the budgets that are shared. `offered`: what a zone lists; left out:
        nobody can be asked. `access`: lets the holder of a public key in at a host. `trust`: why the keys of a slice's
        hosts are trusted. `owner`: what slices are labelled with. `around`: what the context adds to the bill."""
        self._who = who
        self._store, self._blobs, self._clock = store, blobs, clock
        self._access, self._trust, self._loop, self._changes = access, trust, loop, changes
        self._live, self._circuits = live, circuits
        self._funds, self._accounts = funds, accounts
        self._prices = site.prices
        self._secrets, self._bundles = OwnSecrets(store, secrets), Bundles(store, blobs)
        self._submission = Submission(blobs, copies, clock, site, offered, funds)
        self.hosts, self.pin_host, self.clear_host = admin.hosts, admin.pin_host, admin.clear_host
        self._members = members
        costs = Costs(store, clock, owner)
        self.cost, self.ledger = costs.cost, costs.ledger
        placed = self._submission.placed
        self._estimates = estimates = Estimates(
            store, clock, site, placed, around, self._submission.to_copy
        )
        self.estimate = estimates.estimate
        self.compare = Comparisons(store, clock, site, placed, estimates).compare
        self.leaks, self.sweep, self.fsck = admin.leaks, admin.sweep, admin.fsck

    def acting_for(self, who: Principal) -> JobsApi:
        """As that caller may use it: a method that the caller's role does not allow raises Forbidden."""
        mine = copy.copy(self)
        mine._who = who
        return cast("JobsApi", Allowed(mine, who))

    def whoami(self) -> CallerView:
        return CallerView(id=self._who.id, name=self._who.name, role=self._who.role or "")

    def members(self) -> Sequence[MemberView]:
        return self._members.list()

    def give_role(self, name: str, role: str) -> MemberView:
        return self._members.give(self._who, name, role)

    def remove_member(self, name: str) -> None:
        self._members.remove(self._who, name)

    # Submit ----------------------------------------------------------------------------------------------------------

    def plan(self, spec: Mapping[str, Any]) -> PlanView:
        placed = self._submission.placed(spec)
        self._secrets.check(self._who, placed.spec)
        found = self._submission.plan(placed)
        self._estimates.within_budget(placed)
        return found

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        return self._submission.put_bundle(self._who, sha256, data, bucket=bucket)

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: CodeGiven | None = None,
        idempotency_key: str = "",
    ) -> JobView:
        placed = self._submission.placed(spec)
        self._secrets.check(self._who, placed.spec)
        job, created = self._submission.first_record(placed, self._who, bundles, code)
        self._estimates.within_budget(placed)
        self._bundles.check(job)
        key = own_key(self._who, idempotency_key)
        stored = self._store.create(job, created, idempotency_key=key)
        if (stored.spec, stored.bundles) != (job.spec, job.bundles):
            raise Conflict(
                f"the key {idempotency_key[:80]!r} was used for job {stored.id}, which has another spec or other code",
                hint="Use a new key for a new job.",
            )
        self._bundles.hold(stored)
        self._tell(stored.id)
        return self._view(stored)

    # Secrets ---------------------------------------------------------------------------------------------------------

    def secrets(self) -> Sequence[SecretView]:
        return self._secrets.list(self._who)

    def set_secret(self, name: str, value: str) -> None:
        self._secrets.set(self._who, name, value)

    def remove_secret(self, name: str) -> None:
        self._secrets.remove(self._who, name)

    # Look ------------------------------------------------------------------------------------------------------------

    def list(
        self, *, user: str = "", all: bool = False, before: str = "", limit: int = 0
    ) -> list[JobView]:
        jobs = self._store.list(user=user, live=None if all else True)
        older = [job for job in jobs if not before or int(job.id) < number_of(before)]
        return [self._view(job, full=False) for job in older[: limit or None]]

    def get(self, job: str) -> JobView:
        return self._view(self._find("get", job))

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        found = self._store.events(self._find("events", job).id, after=after)
        return [event_view(e) for e in found[: limit or None]]

    def diff(self, a: str, b: str) -> DiffView:
        both = self._find("diff", a), self._find("diff", b)
        return compare(*both, self._blobs, self._clock.now())

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage:
        found = self._find("logs", job)
        return log_reader.read(
            self._blobs, found, host=host, attempt=attempt, cursor=cursor, tail=tail, timeout=ANSWER
        )

    def access(self, job: str, *, host: int = 0, key: str) -> HostAccess:
        found = self._find("access", job)
        serving = found.slice
        if serving is None or not serving.endpoints or found.state is State.RELEASING:
            raise IllegalInState(
                f"job {found.id} is {found.state}: it has no host that can be reached",
                hint=f"`tpujob why {found.id}` says why; `tpujob logs {found.id}` has its output.",
            )
        if not 0 <= host < len(serving.endpoints):
            had = log_reader.hosts_up_to(len(serving.endpoints))
            raise NotFound(f"job {found.id} has {had}, no host {host}")
        return self._access(serving, host, key, f"{self._who.name} for job {found.id}")

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        job_id = self._find("follow", job).id if job else None
        after = self._changes.now()  # before the first look: no change falls between look and wait
        while True:
            yield
            if job_id:
                self._loop.attend(job_id, timeout + 5)
            after = self._changes.wait(job_id, after, timeout)

    def budgets(self) -> Sequence[SpendingView]:
        now, live = self._clock.now(), self._store.list(live=True)
        own = ((job.id, money.account(job, now, self._funds(job).granted)) for job in live)
        return [
            *(budgets.view(money.at(known, now)) for known in self._accounts()),
            *(budgets.view(known, job_id) for job_id, known in own if known),
        ]

    # Steer -----------------------------------------------------------------------------------------------------------

    def cancel(self, job: str, *, release: bool = False) -> JobView:
        kind = EventKind.RELEASE_REQUESTED if release else EventKind.CANCEL_REQUESTED
        text = "cancel requested, with release of the slice" if release else "cancel requested"
        return self._view(
            self._wish(
                "cancel", job, kind, text, lambda j: _keep_final(j) or _already(j, release=release)
            )
        )

    def delete(self, job: str) -> JobView:
        def settled(j: Job) -> bool:
            return _keep_final(j) or _already(j, release=True)

        return self._view(
            self._wish("delete", job, EventKind.RELEASE_REQUESTED, "delete requested", settled)
        )

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView:
        def settled(j: Job) -> bool:
            return j.wish is Wish.CLEAN and j.wipe_checkpoints == checkpoints

        text = "clean requested" + (", with its checkpoints" if checkpoints else "")
        return self._view(
            self._wish(
                "clean", job, EventKind.CLEAN_REQUESTED, text, settled, CleanRequested(checkpoints)
            )
        )

    def resume(self, job: str, *, budget: float | None = None) -> JobView:
        def settled(j: Job) -> bool:
            _check_resumable(j)
            going = j.wish is Wish.RUN and not j.state.final
            if not going:
                budgets.check_resume(j, self._funds(j), self._prices, self._clock.now())
            return going

        if budget is not None:
            self._change_budget(job, budget)
        return self._view(
            self._wish("resume", job, EventKind.RESUME_REQUESTED, "resume requested", settled)
        )

    def _change_budget(self, job: str, usd: float) -> None:
        limit = budgets.limit(usd)

        def known(j: Job) -> bool:
            _check_resumable(j)
            changed = replace(j, spend_limit=limit)
            budgets.check_resume(changed, self._funds(j), self._prices, self._clock.now())
            return money.limit(j) == limit

        text = f"the budget is {dollars(limit)}"
        self._wish("resume", job, EventKind.BUDGET_CHANGED, text, known, BudgetChanged(limit))

    def _wish(
        self,
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
            found = self._find(method, job)
            if settled(found):
                return found
            asked = event(found, kind, self._clock.now(), text, payload, by=self._who.name)
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
            self._tell(stored.id)
            return stored
        raise Conflict(
            f"job {job} could not be changed: other changes came first, {TRIES} times in a row",
            hint="Try again in a moment.",
        )

    def _tell(self, job_id: str) -> None:
        self._changes.poke()
        self._loop.poke(job_id)

    def _find(self, method: str, job: str) -> Job:
        return find_job(self._store, self._who, method, job)

    def _view(self, job: Job, *, full: bool = True) -> JobView:
        live = self._live.get(job.id)
        current = (
            live is not None and job.attempt is not None and live.attempt == job.attempt.number
        )
        use = (
            live.progress
            if live and current and job.attempt and job.attempt.ended_at is None
            else None
        )
        now, funds = self._clock.now(), self._funds(job)
        return job_view(
            job,
            now=now,
            progress=use,
            moved_at=live.moved_at if live and use else None,
            maintenance=live.maintenance if live and use else None,
            trouble=live.trouble if live else "",
            trouble_since=live.trouble_since if live else None,
            wait=self._wait(job) if full else None,
            funds=funds,
            unpaid=budgets.waits_for(job, funds, self._prices, now),
            full=full,
            private=access.sees_all(self._who, job.owner),
            host_keys=self._trust(job.slice) if full and job.slice and job.slice.endpoints else "",
        )

    def _wait(self, job: Job) -> capacity.Wait | None:
        asks = job.state in _ASKING and capacity.refusals(job)
        return capacity.wait(job, self._circuits()) if asks else None


#: states in which a job waits for a slice
_ASKING = (State.QUEUED, State.PROVISIONING, State.RELEASING)


def _check_resumable(job: Job) -> None:
    """Raises IllegalInState for a job that is done for good."""
    if job.state is State.SUCCEEDED:
        raise IllegalInState(
            f"job {job.id} has succeeded; there is nothing to resume",
            hint="`tpujob create` starts a new one.",
        )
    if job.wish is Wish.CLEAN:
        raise IllegalInState(
            f"job {job.id} is being cleaned", hint="`tpujob create` starts a new one."
        )


def _keep_final(job: Job) -> bool:
    """A job that has ended stays as it ended."""
    return job.state.final


def _already(job: Job, *, release: bool) -> bool:
    return job.wish in (
        (Wish.RELEASE, Wish.CLEAN) if release else (Wish.CANCEL, Wish.RELEASE, Wish.CLEAN)
    )
