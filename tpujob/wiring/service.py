"""Puts the service together, of ports and of what the engine knows. No adapter is chosen here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.domain.access import BACKEND, Principal
from tpujob.engine import Bundles
from tpujob.service.backend import BackendStatus
from tpujob.service.backend.overview import Overview
from tpujob.service.backend.queue import QueueReader
from tpujob.service.curves import Curves
from tpujob.service.job_actions import JobActions
from tpujob.service.job_index import EventReader, JobIndex
from tpujob.service.jobs import Changing, Jobs, Reading
from tpujob.service.logs import Logs
from tpujob.service.money.comparison import Comparisons
from tpujob.service.money.cost import Costs
from tpujob.service.money.estimate import Estimates
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.submission import OwnSecrets, Submission

if TYPE_CHECKING:
    from tpujob.domain.model import Job
    from tpujob.ports import Ports
    from tpujob.service import Admin, Changes, Membership
    from tpujob.service.jobs import EngineState, HostReach, ServiceSettings
    from tpujob.service.logs import LiveLogs
    from tpujob.service.notifications import Notifications


def jobs(
    ports: Ports,
    engine: EngineState,
    reach: HostReach,
    settings: ServiceSettings,
    *,
    changes: Changes,
    admin: Admin,
    members: Membership,
    notifications: Notifications,
    live_logs: LiveLogs | None = None,
    who: Principal = BACKEND,
) -> Jobs:
    """`live_logs`: what running hosts print that is not stored yet. `who`: for whom; `acting_for` makes one for another
    caller."""
    store, blobs, clock, site = ports.store, ports.blobs, ports.clock, settings.site
    waiting = engine.queue
    knowledge = RuntimeReader(engine.live, engine.circuits, engine.funds, site.prices, waiting.of)
    index = JobIndex(store, changes, clock, knowledge)
    costs = Costs(store, clock, index, settings.owner, emulated=settings.around.emulated)

    def announce(job: Job) -> None:
        index.note(job)
        engine.queue.learn(job)
        changes.poke()
        engine.loop.poke(job.id)

    queue = QueueReader(store, clock, waiting, index, knowledge)
    submission = Submission(
        blobs, ports.copies, clock, site, settings.offered, engine.funds, settings.word
    )
    estimates = Estimates(
        store, clock, site, submission.placed, settings.around, submission.to_copy
    )
    status = BackendStatus(
        store, clock, index, engine.loop, engine.counters, notifications, engine.circuits, costs,
        settings.process,
    )  # fmt: skip
    reading = Reading(
        changes=changes,
        events=EventReader(store),
        knowledge=knowledge,
        index=index,
        logs=Logs(blobs, live_logs),
        curves=Curves(blobs, clock, reach.key),
        status=status,
        suspects=admin.suspects,
        queue=queue,
    )
    changing = Changing(
        submission=submission,
        secrets=OwnSecrets(store, ports.secrets),
        bundles=Bundles(store, blobs),
        estimates=estimates,
        actions=JobActions(
            store,
            clock,
            site.prices,
            engine.funds,
            announce,
            index.stopping,
            waiting.jobs,
            index.ended_by,
        ),
        announce=announce,
    )
    comparisons = Comparisons(store, clock, site, submission.placed, estimates)
    overview = Overview(store, clock, engine.circuits, index, settings.quotas)
    secrets = changing.secrets
    parts = (
        admin, members, notifications, secrets, submission, overview, costs, estimates, comparisons, status, queue,
    )  # fmt: skip
    return Jobs(who, ports, engine, reach, settings, reading, changing, notifications, parts)
