"""The service behind `JobsApi`: what a user can ask of jobs. The reconciler carries it out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from math import isfinite
from typing import Any, Self, cast

from tpujob.api import (
    METHODS,
    BestView,
    CallerView,
    CodeGiven,
    DiffView,
    ElementView,
    EventView,
    HostAccess,
    HostView,
    JobPage,
    JobsApi,
    JobView,
    ListAsked,
    LogBlock,
    LogMatches,
    LogPage,
    LogWindow,
    MemberView,
    MetricsView,
    PatchView,
    PlanView,
    RefusedView,
    SearchAsked,
    SpendingView,
    WindowAsked,
)
from tpujob.domain import access
from tpujob.domain.access import BACKEND, Principal
from tpujob.domain.capacity.site import EVERYWHERE, Site
from tpujob.domain.failures.disclosure import ended_by, in_full, job_in_full
from tpujob.domain.model import DesiredState, Edge, Job, Slice, State
from tpujob.domain.money import budget as money
from tpujob.domain.money.estimate_shapes import Surroundings
from tpujob.engine import Bundles, JobRuntime, Loop, Reconciler
from tpujob.errors import BadRequest, Conflict, DamagedRecord, IllegalInState, NotFound
from tpujob.service import details, next_step, offered_actions
from tpujob.service.admin import Admin
from tpujob.service.authorization import Authorized, find_job, own_key
from tpujob.service.backend import BackendStatus, ProcessFacts, metrics
from tpujob.service.backend.capacity import Quotas
from tpujob.service.backend.overview import Overview
from tpujob.service.backend.queue import QueueReader
from tpujob.service.curves import Curves
from tpujob.service.diff import compare
from tpujob.service.job_actions import JobActions
from tpujob.service.job_index import Changes, EventReader, JobIndex
from tpujob.service.logs import LiveLogs, Logs, hosts_up_to
from tpujob.service.members import Membership
from tpujob.service.money import budgets
from tpujob.service.money.comparison import Comparisons
from tpujob.service.money.cost import Costs
from tpujob.service.money.estimate import Estimates
from tpujob.service.notifications import Notifications
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.submission import Offered, OwnSecrets, Placed, Submission, types_unknown
from tpujob.service.views import event_view, job_view


@dataclass(frozen=True, slots=True)
class HostReach:
    """The settings for reaching and trusting hosts, beyond the port `Hosts`."""

    access: Callable[[Slice, int, str, str], HostAccess]  #: lets the holder of a public key in
    trust: Callable[[Slice], str] = lambda _: ""  #: why the keys of a slice's hosts are trusted


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The context's settings for the service."""

    site: Site = EVERYWHERE
    #: what the context adds to the bill
    around: Surroundings = field(default_factory=Surroundings)
    owner: str = "local"  #: what slices are labelled with
    offered: Offered = types_unknown  #: what a zone lists
    quotas: Quotas | None = None  #: what the project may hold; None: there is none to read
    process: ProcessFacts = field(default_factory=ProcessFacts)
    word: Callable[[], str] = str  #: draws one for the workdir of each new job


#: elements of a group that its view names, at most
WORST = 8


class Jobs:
    """Implements `api.JobsApi` for one caller. Methods that need several parts are here; every other is in one part."""

    def __init__(
        self,
        reconciler: Reconciler,
        loop: Loop,
        reach: HostReach,
        settings: ServiceSettings,
        *,
        changes: Changes,
        admin: Admin,
        members: Membership,
        notifications: Notifications,
        live_logs: LiveLogs | None = None,
    ) -> None:
        """Make the service for the backend itself; `for_caller` returns one for a caller. `live_logs`: output of
        running hosts that is not stored yet."""
        ports, circuits, funds = reconciler.ports, reconciler.circuits, reconciler.spending.of
        store, blobs, clock, site = ports.store, ports.blobs, ports.clock, settings.site
        queue, prices, around = reconciler.queue, site.prices, settings.around
        self._who, self._ports, self._reconciler, self._loop = BACKEND, ports, reconciler, loop
        self._reach, self._settings, self._notifications = reach, settings, notifications
        self._suspects, self.changes, self._members = admin.suspects, changes, members
        self._knowledge = RuntimeReader(reconciler.live, circuits, funds, prices, queue.of)
        self.index = index = JobIndex(store, changes, clock, self._knowledge)
        costs = Costs(store, clock, index, settings.owner, emulated=around.emulated)
        self.itself = BackendStatus(
            store, clock, index, loop, reconciler.counters, notifications, circuits, costs,
            settings.process,
        )  # fmt: skip
        self._queue = QueueReader(
            store, clock, queue, index, self._knowledge, reconciler.breaker, settings.quotas
        )
        self._submission = submission = Submission(
            blobs, ports.copies, clock, site, settings.offered, funds, settings.word
        )
        self._estimates = Estimates(
            store, clock, site, submission.placed, around, submission.to_copy
        )
        self._secrets, self._bundles = OwnSecrets(store, ports.secrets), Bundles(store, blobs)
        self._actions = JobActions(
            store, clock, prices, funds, self._announce, index.stopping, queue.jobs, index.ended_by
        )
        self._logs, self._curves = Logs(blobs, live_logs), Curves(blobs, clock, ports.hosts.key)
        self._events = EventReader(store)
        parts = (
            admin, members, notifications, self._secrets, submission, costs, self._estimates, self.itself, self._queue,
            Overview(store, clock, circuits, index, settings.quotas),
            Comparisons(store, clock, site, submission.placed, self._estimates),
        )  # fmt: skip
        #: by method of the table: the part that has it; the caller comes first where it has the parameter `caller`
        self._places = {n: part for part in parts for n in METHODS if hasattr(type(part), n)}

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:  # also while a copy is made, which has nothing yet
            raise AttributeError(f"{type(self).__name__} has no {name}")
        method = getattr(self._places[name], name)
        return partial(method, self._who) if "caller" in signature(method).parameters else method

    def acting_for(self, caller: Principal) -> JobsApi:
        """Return the service for that caller: a method that the caller's role does not allow raises Forbidden."""
        return cast("JobsApi", Authorized(self.for_caller(caller), caller))

    def for_caller(self, caller: Principal) -> Self:
        """Return the same for that caller, whatever their role."""
        mine = copy.copy(self)
        mine._who = caller
        return mine

    def whoami(self) -> CallerView:
        return CallerView(id=self._who.id, name=self._who.name, role=self._who.role or "")

    def backend_metrics(self) -> str:
        return metrics.text(self.itself, self._reconciler.queue)

    # Submit ----------------------------------------------------------------------------------------------------------

    def plan(self, spec: Mapping[str, Any]) -> PlanView:
        placed, _ = self._check(spec)
        view = self._submission.plan(placed)
        self._estimates.within_budget(placed)
        return view

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: CodeGiven | None = None,
        idempotency_key: str = "",
    ) -> JobView:
        key = own_key(self._who, idempotency_key)
        stored = self._ports.store.find_created(key) if key else None
        if stored is not None:  # the limits for a new job count it already
            again = self._submission.placed(spec).spec
            own = int(again.run.workload is not None)  # the bundled workloads come first
            same = (stored.spec, stored.bundles[own:]) == (again, tuple(dict.fromkeys(bundles)))
        else:
            placed, edges = self._check(spec)
            job, created = self._submission.first_record(placed, self._who, bundles, code)
            job = replace(job, edges=edges)
            self._estimates.within_budget(placed)
            self._bundles.check(job)
            stored = self._ports.store.create(job, created, idempotency_key=key)
            same = (stored.spec, stored.bundles) == (job.spec, job.bundles)
        if not same:
            raise Conflict(
                f"the key {idempotency_key[:80]!r} was used for job {stored.id}, which has another spec or other code",
                hint="Use a new key for a new job.",
            )
        self._bundles.hold(stored)
        self._announce(stored)
        return self._view(stored)

    def _check(self, spec: Mapping[str, Any]) -> tuple[Placed, tuple[Edge, ...]]:
        """Return the spec with its place, and the jobs that it waits for. Raises BadSpec, IllegalInState."""
        placed = self._submission.placed(spec)
        self._submission.check_data(self._who, placed.spec)
        self._secrets.check(self._who, placed.spec)
        self._notifications.check(placed.spec)
        self._queue.check(self._who, placed.spec, placed.offers)
        return placed, self._queue.edges(self._who, placed.spec)

    # Look ------------------------------------------------------------------------------------------------------------

    def list(self, asked: ListAsked | None = None) -> JobPage:
        return self.index.page(self._who, asked or {})

    def get(self, job: str) -> JobView:
        return self._view(self._find("get", job))

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        record = self._find("events", job)
        shown = self._events.read(record, after)[: limit or None]
        if access.sees_all(self._who, record.owner):
            shown = [replace(e, text=in_full(e.text, ended_by(record, e.at))) for e in shown]
        return [event_view(e) for e in shown]

    def metrics(self, job: str, *, attempt: int | None = None) -> MetricsView:
        return self._curves.metrics(self._find("metrics", job), attempt=attempt)

    def diff(self, a: str, b: str) -> DiffView:
        both = self._find("diff", a), self._find("diff", b)
        first, second = (self._knowledge.going(job) for job in both)
        live = (first and first.progress, second and second.progress)
        return compare(*both, self._ports.blobs, self._ports.clock.now(), live=live)

    def patch(self, job: str) -> PatchView:
        return details.patch(self._find("patch", job), self._ports.blobs)

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage:
        record = self._find("logs", job)
        return self._logs.page(record, host=host, attempt=attempt, cursor=cursor, tail=tail)

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        record = self._find("log_block", job)
        return self._logs.block(record, host=host, attempt=attempt, cursor=cursor)

    def log_window(self, job: str, asked: WindowAsked | None = None) -> LogWindow:
        return self._logs.window(self._find("log_window", job), asked or {})

    def log_search(self, job: str, asked: SearchAsked) -> LogMatches:
        return self._logs.search(self._find("log_search", job), asked)

    def access(self, job: str, *, host: int = 0, key: str) -> HostAccess:
        record = self._find("access", job)
        if record.spec.is_group:
            raise BadRequest(
                f"job {record.id} is a group: each of its jobs has hosts",
                hint=f"tpujob ssh {record.name}-0",
            )
        serving = record.slice
        if serving is None or not serving.endpoints or record.state is State.RELEASING:
            raise IllegalInState(
                f"job {record.id} is {record.state}: it has no host that can be reached",
                hint=f"`tpujob why {record.id}` says why; `tpujob logs {record.id}` has its output.",
            )
        if not 0 <= host < len(serving.endpoints):
            had = hosts_up_to(len(serving.endpoints))
            raise NotFound(f"job {record.id} has {had}, no host {host}")
        return self._reach.access(serving, host, key, f"{self._who.name} for job {record.id}")

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        job_id = self._find("follow", job).id if job else None
        after = self.changes.now()  # before the first look: no change falls between look and wait
        while True:
            yield
            if job_id:
                self._loop.attend(job_id, timeout + 5)
            after = self.changes.wait(job_id, after, timeout)

    def budgets(self) -> Sequence[SpendingView]:
        now, live = self._ports.clock.now(), self.index.split()[0]
        own = (
            (job.id, money.account(job, now, self._reconciler.spending.of(job).granted))
            for job in sorted(live, key=lambda job: job.id, reverse=True)
        )
        shared = self._reconciler.spending.accounts()
        return [
            *(budgets.view(money.account_at(account, now)) for account in shared),
            *(budgets.view(account, job_id) for job_id, account in own if account),
        ]

    # Steer -----------------------------------------------------------------------------------------------------------

    def cancel(self, job: str, *, release: bool = False) -> JobView:
        return self._view(self._actions.cancel(self._who, job, release=release))

    def delete(self, job: str) -> JobView:
        return self._view(self._actions.delete(self._who, job))

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView:
        return self._view(self._actions.clean(self._who, job, checkpoints=checkpoints))

    def resume(self, job: str, *, budget: float | None = None) -> JobView:
        return self._view(self._actions.resume(self._who, job, budget=budget))

    def hold(self, job: str) -> JobView:
        return self._view(self._actions.hold(self._who, job))

    def release(self, job: str) -> JobView:
        return self._view(self._actions.release(self._who, job))

    def top(self, job: str) -> JobView:
        return self._view(self._actions.top(self._who, job))

    def requeue(self, job: str) -> JobView:
        return self._view(self._actions.requeue(self._who, job))

    # Members ---------------------------------------------------------------------------------------------------------

    def remove_member(self, name: str, *, to: str = "", secrets: bool = False) -> MemberView:
        member = self._members.leaving(self._who, name)
        heir = self._members.heir(self._who, member, to) if to else None
        if secrets and heir is None:
            self._secrets.remove_all(member.principal)
        self._members.remove(self._who, member)
        if heir and member.id:
            self._secrets.copy(member.id, heir.id)  # before the jobs, which may start at once
            self._actions.hand_over(self._who, member.id, heir)
            self._secrets.remove_all(member.principal)
        return self._members.settle(member)

    def _announce(self, job: Job) -> None:
        """Notify the loop and the followers that a job was stored."""
        self.index.note(job)
        self._reconciler.queue.learn(job)
        self.changes.poke()
        self._loop.poke(job.id)

    def _find(self, method: str, job: str) -> Job:
        return find_job(self._ports.store, self._who, method, job)

    def _view(self, job: Job) -> JobView:
        now = self._ports.clock.now()
        runtime, private = self._knowledge.of(job, now), access.sees_all(self._who, job.owner)
        shown = job_in_full(job) if private else job
        view = job_view(
            shown,
            now=now,
            runtime=runtime,
            private=private,
            host_keys=self._reach.trust(job.slice) if job.slice and job.slice.endpoints else "",
        )
        offered, view["refused"] = offered_actions.offered(
            job,
            self._who,
            now,
            live=runtime.progress,
            funds=runtime.funds,
            prices=self._settings.site.prices,
        )
        view["actions"] = (
            offered_actions.emulated(offered) if self._settings.around.emulated else offered
        )
        if self._settings.around.emulated:
            view["emulated"] = True
        view["place"] = self._queue.place(job, runtime.place) if runtime.place else None
        view["timeline"] = details.spans(shown, now, runtime.progress)
        view["on_hosts"] = self._on_hosts(job, now, private=private)
        for slice_view, slice_ in zip(view["slices"], job.slices, strict=True):
            slice_view["jobs"] = details.slice_jobs(job, slice_, self._ports.store.peek, now)
        if job.group and job.state in (State.FAILED, State.CANCELLED):
            self._ends_with_group(job, view)
        if job.spec.is_group:
            self.index.sum_up(view)
            stopped = {State.FAILED, State.CANCELLED} & view.get("elements", {}).keys()
            if not stopped and job.desired is DesiredState.RUN:
                _refuse_resume(view, "none of its elements failed or was cancelled")
            held = f"held by {job.held_by}; " if job.held_by and not job.state.final else ""
            view["why"] = held + (next_step.elements_text(view) or job.message)
            view["worst"] = self._worst(job)
            view["best"] = self._best(job, private=private)
        return view

    def _ends_with_group(self, job: Job, view: JobView) -> None:
        """Show in an element's view that it can only be resumed with its group, if that was cancelled."""
        with suppress(NotFound, DamagedRecord):
            group = self._ports.store.peek(job.group)
            if group.desired is DesiredState.RUN:
                return
            view["next"] = next_step.after_group(group)
            _refuse_resume(view, f"its group {group.name} was cancelled")

    def _best(self, group: Job, *, private: bool) -> BestView | None:
        query = ListAsked(group=group.id, order="loss", fields=["name", "loss"], limit=1)
        for row in self.index.page(self._who, query)["rows"]:
            if row["loss"] is not None and isfinite(row["loss"]):
                job = self._ports.store.peek(row["id"])
                params = dict(job.params if private else {})
                return BestView(id=job.id, name=job.name, loss=row["loss"], params=params)
        return None

    def _worst(self, group: Job) -> list[ElementView]:
        """Return the first elements that failed."""
        query = ListAsked(group=group.id, states=[State.FAILED], order="id", reverse=True)
        fields = [*ElementView.__annotations__]
        page = self.index.page(self._who, {**query, "fields": fields, "limit": WORST})
        return cast("list[ElementView]", page["rows"])

    def _on_hosts(self, job: Job, now: float, *, private: bool) -> list[HostView]:
        """Return the hosts of the job; to other callers than its owner without suspicions and errors."""
        live = self._reconciler.live.get(job.id) or JobRuntime()
        has_machines = any(report.physical for report in live.reports)
        suspects = (self._suspects() if has_machines else ()) if private else None
        silent = {host: since for host, (since, _) in live.dead.items()}
        return details.hosts(job, live.reports, live.heard_at, silent, suspects, now)


def _refuse_resume(view: JobView, why: str) -> None:
    """Refuse `resume` in the view, if it is offered there."""
    offered = view.get("actions", [])
    view["actions"] = [action for action in offered if action["name"] != "resume"]
    if len(view["actions"]) < len(offered):
        refused = RefusedView(name="resume", why=why, forbidden=False)
        view["refused"] = [*view.get("refused", ()), refused]
