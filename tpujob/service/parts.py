"""The parts of a backend's service, each of which answers some methods of `JobsApi`. They are made once, for all
callers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tpujob.domain.capacity.site import EVERYWHERE, Site
from tpujob.domain.model import Job
from tpujob.domain.money.estimate_shapes import Surroundings
from tpujob.engine import Bundles, Loop, Reconciler
from tpujob.ports import TokenLender
from tpujob.service.admin import Admin
from tpujob.service.backend import BackendStatus, ProcessFacts
from tpujob.service.backend.capacity import Quotas
from tpujob.service.backend.overview import Overview
from tpujob.service.backend.queue import QueueReader
from tpujob.service.curves import Curves
from tpujob.service.files import JobFiles
from tpujob.service.host_reach import HostReach
from tpujob.service.job_actions import JobActions
from tpujob.service.job_index import Changes, JobIndex
from tpujob.service.job_reader import JobReader
from tpujob.service.logs import LiveLogs, Logs
from tpujob.service.members import Membership
from tpujob.service.money.comparison import Comparisons
from tpujob.service.money.cost import Costs
from tpujob.service.money.estimate import Estimates
from tpujob.service.notifications import Notifications
from tpujob.service.own_secrets import OwnSecrets
from tpujob.service.runs import Runs
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.submission import Submission, TypesInZone, types_unknown


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The context's settings for the service."""

    site: Site = EVERYWHERE
    #: what the context adds to the bill
    surroundings: Surroundings = field(default_factory=Surroundings)
    owner: str = "local"  #: what slices are labelled with
    offered: TypesInZone = types_unknown  #: what a zone lists
    quotas: Quotas | None = None  #: what the project may hold; None: there is none to read
    process: ProcessFacts = field(default_factory=ProcessFacts)
    word: Callable[[], str] = str  #: draws one for the workdir of each new job


class Parts:
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
        lender: TokenLender,
        live_logs: LiveLogs | None = None,
    ) -> None:
        """`live_logs`: output of running hosts that is not stored yet."""
        ports, circuits, funds = reconciler.ports, reconciler.circuits, reconciler.spending.of
        store, blobs, clock, site = ports.store, ports.blobs, ports.clock, settings.site
        queue, prices, around = reconciler.queue, site.prices, settings.surroundings
        self.store, self.blobs, self.clock = store, blobs, clock
        self.spending, self.engine_queue, self._loop = reconciler.spending, queue, loop
        self.admin, self.members, self.notifications = admin, members, notifications
        self.changes, self.reach = changes, reach
        runtime = RuntimeReader(reconciler.live, circuits, funds, prices, queue.of)
        self.files = JobFiles(blobs, lender, runtime)
        self.index = index = JobIndex(store, changes, clock, runtime)
        self.costs = Costs(store, clock, index, settings.owner, emulated=around.emulated)
        self.status = BackendStatus(
            store, clock, index, loop, reconciler.counters, notifications, circuits, self.costs,
            settings.process,
        )  # fmt: skip
        self.overview = Overview(store, clock, circuits, index, settings.quotas)
        self.queue = QueueReader(
            store, clock, queue, index, runtime, reconciler.breaker, settings.quotas
        )
        self.submission = submission = Submission(
            blobs, ports.copies, clock, site, settings.offered, funds, settings.word
        )
        self.estimates = Estimates(
            store, clock, site, submission.placed, around, submission.to_copy
        )
        self.comparisons = Comparisons(store, clock, site, submission.placed, self.estimates)
        self.secrets, self.bundles = OwnSecrets(store, ports.secrets), Bundles(store, blobs)
        self.actions = JobActions(
            store, clock, prices, funds, self.announce, index.stopping, queue.jobs, index.ended_by
        )
        self.logs, self.curves = Logs(blobs, live_logs), Curves(blobs, clock, ports.hosts.key)
        self.runs = Runs(store, clock, index, runtime, self.curves)
        self.reader = JobReader(
            ports, index, runtime, self.queue, reconciler.live, reach.trust, prices,
            emulated=around.emulated,
        )  # fmt: skip

    def announce(self, job: Job) -> None:
        """Notify the loop and the followers that a job was stored."""
        self.index.note(job)
        self.engine_queue.learn(job)
        self.changes.poke()
        self._loop.poke(job.id)

    def follow(self, job_id: str | None, timeout: float) -> Iterator[None]:
        """Yield as `JobsApi.follow` does."""
        after = self.changes.now()  # before the first look: no change falls between look and wait
        while True:
            yield
            if job_id:
                self._loop.attend(job_id, timeout + 5)
            after = self.changes.wait(job_id, after, timeout)
