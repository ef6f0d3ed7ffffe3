"""The service behind `JobsApi`: what a user can ask of jobs. The reconciler carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from tpujob.api import JobsApi
from tpujob.api import all_shapes as shapes
from tpujob.domain.access import BACKEND, Principal
from tpujob.domain.model import Edge, Job
from tpujob.domain.money import budget as money
from tpujob.domain.paging import EVENTS
from tpujob.errors import Conflict
from tpujob.service import details
from tpujob.service.authorization import authorize, find_job, own_key
from tpujob.service.backend import metrics
from tpujob.service.money import budgets
from tpujob.service.parts import Parts
from tpujob.service.submission import ResolvedSpec


class Jobs:
    """Implements `api.JobsApi` for one caller. A method that takes a job finds it by `_find`, every other reaches the
    parts of the service by `_authorized`: both raise Forbidden. Methods that need several parts are written out here.
    """

    def __init__(self, parts: Parts, caller: Principal = BACKEND) -> None:
        self.parts, self._caller = parts, caller

    def acting_for(self, caller: Principal) -> JobsApi:
        """Return the service for that caller."""
        return Jobs(self.parts, caller)

    def _authorized(self, method: str) -> Parts:
        """Return the parts of the service. Raises Forbidden unless the caller's role allows that method."""
        authorize(self._caller, method)
        return self.parts

    def _find(self, method: str, job: str) -> Job:
        """Return the job. Raises NotFound, BadRequest; Forbidden unless the caller may call that method for it."""
        return find_job(self._authorized(method).store, self._caller, method, job)

    def _view(self, job: Job) -> shapes.JobView:
        return self.parts.reader.view(job, self._caller)

    # Submit ----------------------------------------------------------------------------------------------------------

    def plan(self, spec: Mapping[str, Any]) -> shapes.PlanView:
        parts = self._authorized("plan")
        placed, _ = self._check(spec)
        view = parts.submission.plan(placed)
        parts.estimates.within_budget(placed)
        parts.estimates.expected_run(placed)
        return view

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        submission = self._authorized("put_bundle").submission
        return submission.put_bundle(self._caller, sha256, data, bucket=bucket)

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: shapes.Checkout | None = None,
        idempotency_key: str = "",
    ) -> shapes.JobView:
        parts = self._authorized("create")
        key = own_key(self._caller, idempotency_key)
        stored = parts.store.find_created(key) if key else None
        if stored is not None:  # the limits for a new job count it already
            again = parts.submission.placed(spec).spec
            own = int(again.run.workload is not None)  # the bundled workloads come first
            same = (stored.spec, stored.bundles[own:]) == (again, tuple(dict.fromkeys(bundles)))
        else:
            placed, edges = self._check(spec)
            job, created = parts.submission.first_record(placed, self._caller, bundles, code)
            parts.estimates.within_budget(placed)
            job = replace(job, edges=edges, expected=parts.estimates.expected_run(placed))
            parts.bundles.check(job)
            stored = parts.store.create(job, created, idempotency_key=key)
            same = (stored.spec, stored.bundles) == (job.spec, job.bundles)
        if not same:
            raise Conflict(
                f"the key {idempotency_key[:80]!r} was used for job {stored.id}, which has another spec or other code",
                hint="Use a new key for a new job.",
            )
        parts.bundles.hold(stored)
        parts.announce(stored)
        return self._view(stored)

    def _check(self, spec: Mapping[str, Any]) -> tuple[ResolvedSpec, tuple[Edge, ...]]:
        """Return the spec with its place, and the jobs that it waits for. Raises BadSpec, IllegalInState."""
        parts, caller = self.parts, self._caller
        placed = parts.submission.placed(spec)
        parts.submission.check_data(caller, placed.spec)
        parts.secrets.check(caller, placed.spec)
        parts.notifications.check(placed.spec)
        parts.queue.check(caller, placed.spec, placed.offers)
        return placed, parts.queue.edges(caller, placed.spec)

    def secrets(self) -> Sequence[shapes.SecretView]:
        return self._authorized("secrets").secrets.secrets(self._caller)

    def set_secret(self, name: str, value: str) -> None:
        self._authorized("set_secret").secrets.set_secret(self._caller, name, value)

    def remove_secret(self, name: str) -> None:
        self._authorized("remove_secret").secrets.remove_secret(self._caller, name)

    # Jobs ------------------------------------------------------------------------------------------------------------

    def list(self, query: shapes.ListQuery | None = None) -> shapes.JobPage:
        return self._authorized("list").index.page(self._caller, query or {})

    def get(self, job: str) -> shapes.JobView:
        return self._view(self._find("get", job))

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[shapes.EventView]:
        record = self._find("events", job)
        return self.parts.reader.events(record, self._caller, after=after, limit=limit)

    def metrics(self, job: str, *, attempt: int | None = None) -> shapes.MetricsView:
        return self.parts.curves.metrics(self._find("metrics", job), attempt=attempt)

    def curves(self, jobs: Sequence[str]) -> shapes.CurvesView:
        records = [self._find("curves", job) for job in jobs]
        return self._authorized("curves").runs.curves(records, self._caller)

    def diff(self, a: str, b: str) -> shapes.DiffView:
        return self.parts.reader.diff(self._find("diff", a), self._find("diff", b))

    def patch(self, job: str) -> shapes.PatchView:
        return details.patch(self._find("patch", job), self.parts.blobs)

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
        since: float | None = None,
    ) -> shapes.LogPage:
        record = self._find("logs", job)
        return self.parts.logs.page(
            record, host=host, attempt=attempt, cursor=cursor, tail=tail, since=since
        )

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> shapes.LogBlock:
        record = self._find("log_block", job)
        return self.parts.logs.block(record, host=host, attempt=attempt, cursor=cursor)

    def log_window(self, job: str, query: shapes.WindowQuery | None = None) -> shapes.LogWindow:
        return self.parts.logs.window(self._find("log_window", job), query or {})

    def log_search(self, job: str, query: shapes.SearchQuery) -> shapes.LogMatches:
        return self.parts.logs.search(self._find("log_search", job), query)

    def access(self, job: str, *, host: int = 0, key: str) -> shapes.HostAccess:
        return self.parts.reach.log_in(self._find("access", job), host, key, self._caller)

    def outputs(self, job: str) -> shapes.OutputsView:
        return self.parts.files.outputs(self._find("outputs", job))

    def read_files(self, job: str) -> shapes.FilesAccess:
        return self.parts.files.access(self._find("read_files", job), write=False)

    def write_files(self, job: str) -> shapes.FilesAccess:
        return self.parts.files.access(self._find("write_files", job), write=True)

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        parts = self._authorized("follow")
        return parts.follow(self._find("follow", job).id if job else None, timeout)

    # Actions ---------------------------------------------------------------------------------------------------------

    def cancel(self, job: str, *, release: bool = False) -> shapes.JobView:
        actions = self._authorized("cancel").actions
        return self._view(actions.cancel(self._caller, job, release=release))

    def resume(self, job: str, *, budget: float | None = None) -> shapes.JobView:
        actions = self._authorized("resume").actions
        return self._view(actions.resume(self._caller, job, budget=budget))

    def delete(self, job: str) -> shapes.JobView:
        return self._view(self._authorized("delete").actions.delete(self._caller, job))

    def clean(self, job: str, *, checkpoints: bool = False) -> shapes.JobView:
        actions = self._authorized("clean").actions
        return self._view(actions.clean(self._caller, job, checkpoints=checkpoints))

    def hold(self, job: str) -> shapes.JobView:
        return self._view(self._authorized("hold").actions.hold(self._caller, job))

    def release(self, job: str) -> shapes.JobView:
        return self._view(self._authorized("release").actions.release(self._caller, job))

    def top(self, job: str) -> shapes.JobView:
        return self._view(self._authorized("top").actions.top(self._caller, job))

    def annotate(
        self,
        job: str,
        *,
        note: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> shapes.JobView:
        actions = self._authorized("annotate").actions
        return self._view(actions.annotate(self._caller, job, note=note, add=add, remove=remove))

    def requeue(self, job: str) -> shapes.JobView:
        return self._view(self._authorized("requeue").actions.requeue(self._caller, job))

    # All jobs --------------------------------------------------------------------------------------------------------

    def happened(
        self, *, before: str = "", kinds: Sequence[str] = (), limit: int = EVENTS
    ) -> shapes.EventsPage:
        overview = self._authorized("happened").overview
        return overview.happened(self._caller, before=before, kinds=kinds, limit=limit)

    def capacity(self) -> shapes.CapacityReport:
        return self._authorized("capacity").overview.capacity()

    def queue(self, *, jobs: Sequence[str] = (), limit: int = 0) -> shapes.QueueView:
        return self._authorized("queue").queue.queue(self._caller, jobs=jobs, limit=limit)

    def shares(self) -> Sequence[shapes.ShareView]:
        return self._authorized("shares").queue.shares()

    # Money -----------------------------------------------------------------------------------------------------------

    def cost(
        self,
        *,
        by: str = "job",
        then: str = "",
        user: str = "",
        job: str = "",
        since: str = "",
        until: str = "",
    ) -> shapes.CostView:
        costs = self._authorized("cost").costs
        return costs.cost(by=by, then=then, user=user, job=job, since=since, until=until)

    def ledger(self) -> shapes.LedgerView:
        return self._authorized("ledger").costs.ledger()

    def estimate(
        self, spec: Mapping[str, Any], inputs: shapes.EstimateInputs | None = None
    ) -> shapes.EstimateView:
        return self._authorized("estimate").estimates.estimate(spec, inputs)

    def compare(
        self,
        spec: Mapping[str, Any],
        inputs: shapes.EstimateInputs | None = None,
        options: shapes.CompareOptions | None = None,
    ) -> shapes.CompareView:
        return self._authorized("compare").comparisons.compare(spec, inputs, options)

    def reached(self) -> Sequence[shapes.ReachedView]:
        return self._authorized("reached").costs.reached()

    def budgets(self) -> Sequence[shapes.SpendingView]:
        parts = self._authorized("budgets")
        now, live = parts.clock.now(), parts.index.split()[0]
        own = (
            (job.id, money.account(job, now, parts.spending.of(job).granted))
            for job in sorted(live, key=lambda job: job.id, reverse=True)
        )
        return [
            *(budgets.view(money.account_at(shared, now)) for shared in parts.spending.accounts()),
            *(budgets.view(account, job_id) for job_id, account in own if account),
        ]

    # The backend -----------------------------------------------------------------------------------------------------

    def whoami(self) -> shapes.CallerView:
        return self._authorized("whoami").members.whoami(self._caller)

    def health(self) -> shapes.HealthView:
        return self._authorized("health").status.health()

    def backend_metrics(self) -> str:
        parts = self._authorized("backend_metrics")
        return metrics.text(parts.status, parts.engine_queue)

    def channels(self) -> Sequence[shapes.ChannelView]:
        return self._authorized("channels").notifications.channels(self._caller)

    def deliveries(self, *, channel: str = "", limit: int = 50) -> Sequence[shapes.DeliveryView]:
        notifications = self._authorized("deliveries").notifications
        return notifications.deliveries(self._caller, channel=channel, limit=limit)

    def test_channel(self, channel: str) -> shapes.DeliveryView:
        return self._authorized("test_channel").notifications.test_channel(self._caller, channel)

    def set_channel_secret(self, name: str, value: str) -> None:
        self._authorized("set_channel_secret").notifications.set_channel_secret(name, value)

    # Upkeep ----------------------------------------------------------------------------------------------------------

    def hosts(self) -> list[shapes.SuspectView]:
        return self._authorized("hosts").admin.hosts()

    def pin_host(self, physical: str, verdict: str) -> shapes.SuspectView:
        return self._authorized("pin_host").admin.pin_host(physical, verdict)

    def clear_host(self, physical: str) -> None:
        self._authorized("clear_host").admin.clear_host(physical)

    def leaks(self) -> shapes.SweptView:
        return self._authorized("leaks").admin.leaks()

    def sweep(self, *, dry_run: bool = False, slice: str = "") -> shapes.SweptView:
        return self._authorized("sweep").admin.sweep(dry_run=dry_run, slice=slice)

    def fsck(self) -> list[shapes.BrokenView]:
        return self._authorized("fsck").admin.fsck()

    def members(self) -> Sequence[shapes.MemberView]:
        return self._authorized("members").members.members()

    def give_role(self, name: str, role: str) -> shapes.MemberView:
        return self._authorized("give_role").members.give_role(self._caller, name, role)

    def remove_member(self, name: str, *, to: str = "", secrets: bool = False) -> shapes.MemberView:
        parts, caller = self._authorized("remove_member"), self._caller
        member = parts.members.leaving(caller, name)
        heir = parts.members.heir(caller, member, to) if to else None
        if secrets and heir is None:
            parts.secrets.remove_all(member.principal)
        parts.members.remove(caller, member)
        if heir and member.id:
            parts.secrets.copy(member.id, heir.id)  # before the jobs, which may start at once
            parts.actions.hand_over(caller, member.id, heir)
            parts.secrets.remove_all(member.principal)
        return parts.members.settle(member)
