"""The backend: a context's settings become the service that runs jobs there, in the world of `wiring/world.py`."""

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tpujob.adapters.calling import SystemClock
from tpujob.adapters.providers import Providers
from tpujob.config.notifications import file_of_local_stack
from tpujob.config.settings import Settings
from tpujob.domain.model import CLOUD_TPU, SCHEMA_VERSION
from tpujob.engine import Counters, Loop, Orphans, Reconciler, zones
from tpujob.engine.notifier import Notifier
from tpujob.ports import Ports
from tpujob.service import Admin, Changes, Membership
from tpujob.service.backend import ProcessFacts
from tpujob.service.backend.capacity import EVERY, Quotas
from tpujob.service.jobs import HostReach, Jobs, ServiceSettings
from tpujob.service.logs import LiveLogs
from tpujob.service.notifications import Notifications
from tpujob.wiring import doctor, notifications
from tpujob.wiring.store import check_database
from tpujob.wiring.world import Adapters, world

if TYPE_CHECKING:
    from tpujob.adapters.firestore import FirestoreStore


@dataclass(frozen=True, slots=True)
class Backend:
    api: Jobs
    loop: Loop
    changes: Changes
    members: Membership
    notifier: Notifier
    listening: LiveLogs
    adapters: Adapters

    def start(self) -> None:
        """Start the control loop and the notifier."""
        self.loop.start()
        self.notifier.start()

    def stop(self) -> None:
        """Return when the ticks that run have ended. Hosts are heard no more. The file of a store is whole by itself: a
        copy of it needs no other file."""
        self.loop.stop()
        self.notifier.stop()
        self.listening.close()
        self.adapters.close()

    def make_pass(self, *, sweep: bool) -> tuple[int, float | None]:
        """Tick all due jobs once, then send messages: for a backend that only runs while it is called."""
        try:
            return self.loop.make_pass(sweep=sweep)
        finally:
            self.notifier.make_pass()


def backend(settings: Settings) -> Backend:
    """The service with its adapters; its loop is not started yet. Raises BackendGone when the emulator is down,
    NotFound or BadSpec when there is no such context or something is wrong with it."""
    counters, clock = Counters(), SystemClock()
    found = world(settings, counters)
    store, site = found.store, found.site
    if store.KIND == "firestore" and not settings.local:
        folders = sorted(set(site.buckets.values()))
        check_database(
            cast("FirestoreStore", store), found.blobs, folders, settings, found.hosts.key
        )
    ports = Ports(
        store,
        Providers({CLOUD_TPU: found.slices}),
        found.hosts,
        found.blobs,
        clock,
        found.copies,
        found.secrets,
        store.reputation,
    )
    # where no stream tells of changes, each read of them is billed
    changes = Changes(store, interval=1.0 if settings.only_called else 0.5)
    members, listening = Membership(store.members), LiveLogs(found.hosts)
    setup = notifications.build_setup(found.notifications, found.secrets, clock, settings.page_url)

    def changed() -> None:
        changes.poke()
        notifier.poke()

    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    reconciler = Reconciler(
        ports,
        owner=owner,
        report_every=settings.report_every,
        changed=changed,
        prices=site.prices,
        budgets=found.budgets,
        queue=found.queue,
        counters=counters,
    )
    accounts = reconciler.spending.accounts
    notifier = Notifier(store, store.outbox, setup, clock, owner=owner, accounts=accounts)
    orphans = Orphans(
        store,
        ports.slices,
        found.hosts,
        clock,
        zones=lambda: zones(store, site.zones),
        leaked=notifier.leaked,
        counters=counters,
    )

    def sweep() -> None:
        reconciler.tidy(orphans.sweep().live)  # a store may bill each read of a job

    loop = Loop(reconciler, store, clock, sweep=sweep)
    api = Jobs(
        reconciler,
        loop,
        HostReach(found.hosts.access, found.hosts.trust),
        _service_settings(settings, found, clock),
        changes=changes,
        admin=Admin(store, orphans, store.reputation, clock, site.prices),
        members=members,
        notifications=Notifications(store.outbox, setup, notifier.sender, found.secrets, clock),
        live_logs=listening,
    )
    return Backend(api, loop, changes, members, notifier, listening, found)


def _service_settings(settings: Settings, found: Adapters, clock: SystemClock) -> ServiceSettings:
    store = found.store
    schemas = {"records": SCHEMA_VERSION} | ({"tables": store.TABLES} if store.TABLES else {})
    # of the emulator it costs nothing, and faults are tried out there
    every = 5.0 if settings.local else EVERY
    return ServiceSettings(
        site=found.site,
        around=found.around,
        owner=found.slices.owner,
        offered=found.slices.catalog.types,
        quotas=Quotas(lambda: doctor.quotas(settings), clock, every=every),
        process=ProcessFacts(
            context=settings.context,
            store=store.KIND,
            started_at=clock.now(),
            channels_file=str(file_of_local_stack(settings)) if settings.local else "",
            called=settings.only_called,
            schemas=schemas,
        ),
        word=lambda: secrets.token_hex(4),
    )


def signing_keys(settings: Settings) -> Callable[[str], tuple[bytes, float]]:
    """Fetches the keys with which tokens are verified; see `adapters/google/rest.py`."""
    from tpujob.adapters.google import rest

    return rest.key_fetcher(settings.google_endpoint)
