"""Builds the backend: the service that runs a context's jobs, with the adapters of `wiring/world.py`."""

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from tpujob.adapters.calling import SystemClock
from tpujob.config.notifications import file_of_local_stack
from tpujob.config.settings import Settings
from tpujob.domain.model import SCHEMA_VERSION
from tpujob.engine import Counters, Loop, Orphans, Reconciler, zones
from tpujob.engine.notifier import Notifier
from tpujob.ports import Ports, Providers, types_in
from tpujob.service import Admin, Changes, Membership
from tpujob.service.backend import ProcessFacts
from tpujob.service.backend.capacity import EVERY, Quotas
from tpujob.service.host_reach import HostReach
from tpujob.service.jobs import Jobs
from tpujob.service.logs import LiveLogs
from tpujob.service.notifications import Notifications
from tpujob.service.parts import Parts, ServiceSettings
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
        """Wait for running ticks to end, then close all connections. The file of a store is then complete: a copy needs
        no other file."""
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
    """Return the service with its adapters, not yet started. Raises BackendGone if the emulator is down, NotFound or
    BadSpec if the context is missing or invalid."""
    counters, clock = Counters(), SystemClock()
    adapters = world(settings, counters)
    store, site = adapters.store, adapters.site
    if store.KIND == "firestore" and not settings.local:
        folders = sorted(set(site.buckets.values()))
        check_database(
            cast("FirestoreStore", store), adapters.blobs, folders, settings, adapters.hosts.key
        )
    ports = Ports(
        store,
        Providers({name: provider.slices for name, provider in adapters.providers.items()}),
        adapters.hosts,
        adapters.blobs,
        clock,
        adapters.copies,
        adapters.secrets,
        store.reputation,
    )
    # without a stream of changes, each read of them is billed
    changes = Changes(store, interval=1.0 if settings.only_called else 0.5)
    members = Membership(store.members, store, adapters.secrets, _named(adapters))
    listening = LiveLogs(adapters.hosts)
    setup = notifications.build_setup(
        adapters.notifications, adapters.secrets, clock, settings.page_url
    )

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
        budgets=adapters.budgets,
        queue=adapters.queue,
        counters=counters,
    )
    accounts = reconciler.spending.accounts
    notifier = Notifier(store, store.outbox, setup, clock, owner=owner, accounts=accounts)
    orphans = Orphans(
        store,
        ports.slices,
        adapters.hosts,
        clock,
        zones=lambda: zones(store, site.zones),
        leaked=notifier.leaked,
        counters=counters,
    )

    def sweep() -> None:
        reconciler.tidy(orphans.sweep().live)  # a store may bill each read of a job

    loop = Loop(reconciler, store, clock, sweep=sweep)
    service = Parts(
        reconciler,
        loop,
        HostReach(adapters.hosts.access, adapters.hosts.trust),
        _service_settings(settings, adapters, clock),
        changes=changes,
        admin=Admin(store, orphans, store.reputation, clock, site.prices),
        members=members,
        notifications=Notifications(store.outbox, setup, notifier.sender, adapters.secrets, clock),
        lender=adapters.lender,
        live_logs=listening,
    )
    return Backend(Jobs(service), loop, changes, members, notifier, listening, adapters)


def _named(adapters: Adapters) -> Mapping[str, Sequence[str]]:
    """Return the settings that name a user, by user."""
    users = {
        "budgets.users": [budget.user for budget in adapters.budgets if budget.user],
        "notifications.rules": [u for rule in adapters.notifications.rules for u in rule.users],
        "queue.high": adapters.queue.high,
        **{f"queue.shares.{share}": named for share, named in adapters.queue.members.items()},
        "service_accounts": adapters.accounts,
    }
    everyone = {user for named in users.values() for user in named}
    return {user: [key for key, named in users.items() if user in named] for user in everyone}


def _service_settings(
    settings: Settings, adapters: Adapters, clock: SystemClock
) -> ServiceSettings:
    store = adapters.store
    schemas = {"records": SCHEMA_VERSION} | ({"tables": store.TABLES} if store.TABLES else {})
    catalogs = {name: provider.catalog for name, provider in adapters.providers.items()}
    # of the emulator it costs nothing, and faults are tried out there
    every = 5.0 if settings.local else EVERY
    return ServiceSettings(
        site=adapters.site,
        surroundings=adapters.surroundings,
        owner=adapters.owner,
        offered=partial(types_in, catalogs),
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
    """Return the function that fetches the keys to verify tokens with; see `adapters/google/rest.py`."""
    from tpujob.adapters.google import rest

    return rest.key_fetcher(settings.google_endpoint)
