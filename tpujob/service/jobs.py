"""The service behind `JobsApi`: what a user can ask of jobs. The reconciler carries it out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, cast

from tpujob.api import (
    CallerView,
    ChannelView,
    CodeGiven,
    DeliveryView,
    DiffView,
    EventsPage,
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
    SearchAsked,
    SecretView,
    SpendingView,
    WindowAsked,
)
from tpujob.domain import access
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.domain.failures.disclosure import ended_by, in_full, job_in_full
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.money import Surroundings
from tpujob.domain.money import budget as money
from tpujob.domain.observations import NO_FUNDS, Account, Circuit, Funds
from tpujob.domain.pages import EVENTS
from tpujob.domain.placement import EVERYWHERE, Site
from tpujob.engine import Bundles, Counters, Live, Loop
from tpujob.errors import Conflict, IllegalInState, NotFound
from tpujob.ports import Blobs, Clock, Copies, Secrets, Store
from tpujob.service import actions, details
from tpujob.service.admin import Admin
from tpujob.service.allowed import Allowed, find_job, own_key
from tpujob.service.backend import BackendStatus, Process
from tpujob.service.diff import compare
from tpujob.service.job_actions import JobActions
from tpujob.service.job_index import Changes, JobIndex, Records
from tpujob.service.logs import LiveLogs, Logs, hosts_up_to
from tpujob.service.members import Membership
from tpujob.service.metrics import Curves
from tpujob.service.money import budgets
from tpujob.service.money.comparison import Comparisons
from tpujob.service.money.cost import Costs
from tpujob.service.money.estimate import Estimates
from tpujob.service.notifications import Notifications
from tpujob.service.overview import Overview, Quotas
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.submission import Offered, Submission, nobody_knows
from tpujob.service.submission.secrets import OwnSecrets
from tpujob.service.views import event_view, job_view


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
        key: Callable[[Sequence[str]], str],
        trust: Callable[[Slice], str] = lambda _: "",
        loop: Loop,
        changes: Changes,
        notifications: Notifications,
        live: Mapping[str, Live],
        circuits: Callable[[], Mapping[str, Circuit]] = dict,
        funds: Callable[[Job], Funds] = lambda _: NO_FUNDS,
        accounts: Callable[[], Sequence[Account]] = tuple,
        offered: Offered = nobody_knows,
        owner: str = "local",
        around: Surroundings = Surroundings(),  # noqa: B008
        quotas: Quotas | None = None,
        counters: Counters | None = None,
        process: Process = Process(),  # noqa: B008
        live_logs: LiveLogs | None = None,
        word: Callable[[], str] = str,
    ) -> None:
        """`who`: for whom; `acting_for` makes one for somebody else. `live`: what the reconciler knows of each job
        beyond its record. `circuits`: the offers that were refused lately, for all jobs. `funds`: what budgets depend
        on beside a job's record. `accounts`: of the budgets that are shared. `offered`: what a zone lists; left out:
        nobody can be asked. `access`: lets the holder of a public key in at a host. `key`: see `Hosts.key`. `trust`:
        why the keys of a slice's hosts are trusted. `owner`: what slices are labelled with. `around`: what the context
        adds to the bill. `quotas`: what the project may hold; left out: there is none to read. `counters`: of the
        process, which is `process`. `live_logs`: what running hosts print that is not stored yet. `word`: draws
        one for the workdir of each new job."""
        self._who = who
        self._store, self._blobs, self._clock = store, blobs, clock
        self._access, self._trust, self._loop, self._changes = access, trust, loop, changes
        self._funds, self._accounts, self._live = funds, accounts, live
        self._records = Records(store, changes)
        self._logs = Logs(blobs, live_logs)
        self._prices = site.prices
        self._knowledge = RuntimeReader(live, circuits, funds, site.prices)
        self.index = JobIndex(store, changes, clock, self._knowledge)
        self._steering = JobActions(store, clock, site.prices, funds, self._tell)
        self._secrets, self._bundles = OwnSecrets(store, secrets), Bundles(store, blobs)
        self._submission = Submission(blobs, copies, clock, site, offered, funds, word)
        self.hosts, self.pin_host, self.clear_host = admin.hosts, admin.pin_host, admin.clear_host
        self._curves = Curves(blobs, clock, key)
        self._members, self._suspects = members, admin.suspects
        self._notifications = notifications
        self.set_channel_secret = notifications.set_channel_secret
        overview = Overview(store, clock, circuits, self.index, quotas)
        self._happened, self.capacity = overview.happened, overview.capacity
        costs = Costs(store, clock, self.index, owner, emulated=around.emulated)
        self._emulated = around.emulated
        self.cost, self.ledger = costs.cost, costs.ledger
        counters = counters or Counters()
        self.itself = itself = BackendStatus(
            store, clock, self.index, loop, counters, notifications, circuits, costs, process
        )
        self.health, self.backend_metrics = itself.health, itself.backend_metrics
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

    # Notifications ----------------------------------------------------------------------------------------------------

    def channels(self) -> Sequence[ChannelView]:
        return self._notifications.channels(self._who)

    def deliveries(self, *, channel: str = "", limit: int = 50) -> Sequence[DeliveryView]:
        return self._notifications.deliveries(self._who, channel=channel, limit=limit)

    def test_channel(self, channel: str) -> DeliveryView:
        return self._notifications.test_channel(self._who, channel)

    # Members ---------------------------------------------------------------------------------------------------------

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
        self._notifications.check(placed.spec)
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
        self._notifications.check(placed.spec)
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
        self._tell(stored)
        return self._view(stored)

    # Secrets ---------------------------------------------------------------------------------------------------------

    def secrets(self) -> Sequence[SecretView]:
        return self._secrets.list(self._who)

    def set_secret(self, name: str, value: str) -> None:
        self._secrets.set(self._who, name, value)

    def remove_secret(self, name: str) -> None:
        self._secrets.remove(self._who, name)

    # Look ------------------------------------------------------------------------------------------------------------

    def list(self, asked: ListAsked | None = None) -> JobPage:
        return self.index.page(self._who, asked or {})

    def get(self, job: str) -> JobView:
        return self._view(self._find("get", job))

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        of = self._find("events", job)
        found = self._records.events(of.id, after)[: limit or None]
        if access.sees_all(self._who, of.owner):
            found = [replace(e, text=in_full(e.text, ended_by(of, e.at))) for e in found]
        return [event_view(e) for e in found]

    def happened(
        self, *, before: str = "", kinds: Sequence[str] = (), limit: int = EVENTS
    ) -> EventsPage:
        full = self._who.at_least(Role.ADMIN)
        return self._happened(before=before, kinds=kinds, limit=limit, full=full)

    def metrics(self, job: str, *, attempt: int | None = None) -> MetricsView:
        return self._curves.metrics(self._find("metrics", job), attempt)

    def diff(self, a: str, b: str) -> DiffView:
        both = self._find("diff", a), self._find("diff", b)
        first, second = (self._knowledge.going(job) for job in both)
        live = (first and first.progress, second and second.progress)
        private = all(access.sees_all(self._who, job.owner) for job in both)
        return compare(*both, self._blobs, self._clock.now(), live=live, private=private)

    def patch(self, job: str) -> PatchView:
        return details.patch(self._find("patch", job), self._blobs)

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
        return self._logs.page(found, host=host, attempt=attempt, cursor=cursor, tail=tail)

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        found = self._find("log_block", job)
        return self._logs.block(found, host=host, attempt=attempt, cursor=cursor)

    def log_window(self, job: str, asked: WindowAsked | None = None) -> LogWindow:
        return self._logs.window(self._find("log_window", job), asked or {}, self._who.id)

    def log_search(self, job: str, asked: SearchAsked) -> LogMatches:
        return self._logs.search(self._find("log_search", job), asked, self._who.id)

    def access(self, job: str, *, host: int = 0, key: str) -> HostAccess:
        found = self._find("access", job)
        serving = found.slice
        if serving is None or not serving.endpoints or found.state is State.RELEASING:
            raise IllegalInState(
                f"job {found.id} is {found.state}: it has no host that can be reached",
                hint=f"`tpujob why {found.id}` says why; `tpujob logs {found.id}` has its output.",
            )
        if not 0 <= host < len(serving.endpoints):
            had = hosts_up_to(len(serving.endpoints))
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
        now, live = self._clock.now(), self.index.split()[0]
        own = (
            (job.id, money.account(job, now, self._funds(job).granted))
            for job in sorted(live, key=lambda job: job.id, reverse=True)
        )
        return [
            *(budgets.view(money.at(known, now)) for known in self._accounts()),
            *(budgets.view(known, job_id) for job_id, known in own if known),
        ]

    # Steer -----------------------------------------------------------------------------------------------------------

    def cancel(self, job: str, *, release: bool = False) -> JobView:
        return self._view(self._steering.cancel(self._who, job, release=release))

    def delete(self, job: str) -> JobView:
        return self._view(self._steering.delete(self._who, job))

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView:
        return self._view(self._steering.clean(self._who, job, checkpoints=checkpoints))

    def resume(self, job: str, *, budget: float | None = None) -> JobView:
        return self._view(self._steering.resume(self._who, job, budget=budget))

    def _tell(self, job: Job) -> None:
        self.index.note(job)
        self._changes.poke()
        self._loop.poke(job.id)

    def _find(self, method: str, job: str) -> Job:
        return find_job(self._store, self._who, method, job, self._records.get)

    def _view(self, job: Job) -> JobView:
        now = self._clock.now()
        known, private = self._knowledge.of(job, now), access.sees_all(self._who, job.owner)
        shown = job_in_full(job) if private else job
        view = job_view(
            shown,
            now=now,
            known=known,
            private=private,
            host_keys=self._trust(job.slice) if job.slice and job.slice.endpoints else "",
        )
        offered, view["refused"] = actions.offered(
            job, self._who, now, live=known.progress, funds=known.funds, prices=self._prices
        )
        view["actions"] = actions.emulated(offered) if self._emulated else offered
        if self._emulated:
            view["emulated"] = True
        view["timeline"] = details.spans(shown, now, known.progress)
        view["on_hosts"] = self._on_hosts(job, now, private=private)
        return view

    def _on_hosts(self, job: Job, now: float, *, private: bool) -> list[HostView]:
        """Of a job that is not the caller's, without what is held against its machines, and without errors."""
        live = self._live.get(job.id) or Live()
        known = any(report.physical for report in live.reports)
        suspects = (self._suspects() if known else ()) if private else None
        silent = {host: since for host, (since, _) in live.dead.items()}
        return details.hosts(job, live.reports, live.heard_at, silent, suspects, now)
