"""The backend's adapters: a context's settings become the service that runs jobs there.

The local stack and the cloud differ here, in `wiring/client.py`, in `wiring/doctor.py` and in `config/stack.py` alone.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.adapters.clock import SystemClock
from tpujob.config.settings import Settings
from tpujob.errors import BackendGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpujob.adapters.calling import Count
    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.firestore import FirestoreStore
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.sqlite import SqliteStore
    from tpujob.adapters.ssh import KeyStore, SshHosts
    from tpujob.config.context import Context
    from tpujob.config.notify import Notifications
    from tpujob.domain.money import Surroundings
    from tpujob.domain.money.shared import SharedBudget
    from tpujob.domain.placement import Site
    from tpujob.engine import Counters, Loop
    from tpujob.engine.notify import Notifier
    from tpujob.ports import Copies, Secrets
    from tpujob.service import Changes, Jobs, Membership
    from tpujob.service.logs import Live


@dataclass(frozen=True, slots=True)
class Backend:
    api: Jobs
    loop: Loop
    changes: Changes
    members: Membership
    notifier: Notifier
    listening: Live

    def start(self) -> None:
        """Look after jobs, and tell people, from here on."""
        self.loop.start()
        self.notifier.start()

    def stop(self) -> None:
        """Return when the ticks that run have ended. Hosts are heard no more."""
        self.loop.stop()
        self.notifier.stop()
        self.listening.close()

    def make_pass(self, *, sweep: bool) -> tuple[int, float | None]:
        """Look after all jobs once, then tell people: for a backend that only runs while it is called."""
        try:
            return self.loop.make_pass(sweep=sweep)
        finally:
            self.notifier.make_pass()


@dataclass(frozen=True, slots=True)
class World:
    """What the service runs in: the emulator, or Google Cloud."""

    store: SqliteStore | FirestoreStore
    slices: CloudTpuSlices
    blobs: GcsBlobs
    copies: Copies
    secrets: Secrets
    hosts: SshHosts
    site: Site
    project: str
    suffix: str  #: of the names of its slices: the backend's own word, with a hyphen before it
    around: Surroundings  #: what it adds to the bill of its jobs
    notifications: Notifications
    budgets: tuple[SharedBudget, ...] = ()


def backend(settings: Settings) -> Backend:
    """The service with its adapters; its loop is not started yet. Raises BackendGone when the emulator is down,
    NotFound or BadSpec when there is no such context or something is wrong with it."""
    import secrets
    import socket

    from tpujob.engine import Counters, Loop, Orphans, Reconciler, zones
    from tpujob.engine.notify import Notifier
    from tpujob.service import Admin, Changes, Jobs, Membership
    from tpujob.service.backend import Process
    from tpujob.service.logs import Live
    from tpujob.service.notify import Notifications
    from tpujob.service.overview import Quotas
    from tpujob.service.overview.quotas import EVERY
    from tpujob.wiring import doctor, notify

    counters = Counters()
    found = world(settings, counters=counters)
    clock, store = SystemClock(), found.store
    changes = Changes(store)
    members = Membership(store.members)
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    setup = notify.setup(found.notifications, found.secrets, clock, settings.page_url)

    def changed() -> None:
        changes.poke()
        notifier.poke()

    reconciler = Reconciler(
        store,
        found.slices,
        found.hosts,
        found.blobs,
        clock,
        copies=found.copies,
        secrets=found.secrets,
        owner=owner,
        reputation=store.reputation,
        report_every=settings.report_every,
        changed=changed,
        prices=found.site.prices,
        budgets=found.budgets,
        counters=counters,
    )
    notifier = Notifier(
        store,
        store.outbox,
        setup,
        clock,
        owner=owner,
        accounts=reconciler.spending.accounts,
    )
    orphans = Orphans(
        store,
        found.slices,
        found.hosts,
        clock,
        zones=lambda: zones(store, found.site.zones),
        leaked=notifier.leaked,
        counters=counters,
    )

    def sweep() -> None:
        orphans.sweep()
        reconciler.tidy()

    loop = Loop(reconciler, store, clock, sweep=sweep)
    listening = Live(found.hosts)
    api = Jobs(
        store,
        found.blobs,
        clock,
        admin=Admin(store, orphans, store.reputation, clock, found.site.prices),
        site=found.site,
        members=members,
        copies=found.copies,
        secrets=found.secrets,
        access=found.hosts.access,
        trust=found.hosts.trust,
        loop=loop,
        changes=changes,
        notifications=Notifications(store.outbox, setup, notifier.sender, found.secrets, clock),
        live=reconciler.live,
        circuits=reconciler.circuits,
        offered=found.slices.catalog.types,
        owner=found.slices.owner,
        around=found.around,
        funds=reconciler.spending.of,
        accounts=reconciler.spending.accounts,
        # of the emulator it costs nothing, and faults are tried out there
        quotas=Quotas(
            lambda: doctor.quotas(settings), clock, every=5.0 if settings.local else EVERY
        ),
        counters=counters,
        process=Process(
            context=settings.context,
            store=store.KIND,
            started_at=clock.now(),
            called=settings.only_called,
            schemas=_schemas(store),
        ),
        live_logs=listening,
    )
    return Backend(api, loop, changes, members, notifier, listening)


def world(
    settings: Settings,
    *,
    keys: KeyStore | None = None,
    wait: float | None = None,
    counters: Counters | None = None,
) -> World:
    """The context's adapters. `keys`: instead of the backend's; `wait`: seconds that a request may wait in the cloud's
    queue; `counters`: of their calls. Raises as `backend` does."""
    count = _counting(counters)
    made = _emulated if settings.local else _google
    return made(settings, keys, wait, count)


def _counting(counters: Counters | None) -> Callable[[str], Count]:
    """Makes what an adapter of that service tells of its calls."""
    from tpujob.adapters.calling import uncounted

    if counters is None:
        return lambda _: uncounted
    return lambda service: lambda method, outcome: counters.count("calls", service, method, outcome)


def _schemas(store: SqliteStore | FirestoreStore) -> dict[str, int]:
    """The versions of what this backend writes."""
    from tpujob.domain.model import SCHEMA_VERSION

    return {"records": SCHEMA_VERSION} | ({"tables": store.TABLES} if store.TABLES else {})


def signing_keys(settings: Settings) -> Callable[[str], tuple[bytes, float]]:
    """Fetches the keys with which tokens are verified; see `adapters/google/signing_keys.py`."""
    from tpujob.adapters.google import signing_keys

    return signing_keys.fetcher(settings.google_endpoint)


def open_store(settings: Settings) -> SqliteStore | FirestoreStore:
    """Where this backend keeps its jobs. Does not connect yet."""
    if settings.store == "firestore":
        from tpujob.adapters.firestore import Firestore, FirestoreStore

        endpoint = settings.firestore_emulator
        database = Firestore(settings.project, settings.database, endpoint=endpoint)
        # a listener does not hear what happens while its process stands still
        return FirestoreStore(database, mirrored=not settings.only_called)
    from tpujob.adapters.sqlite import SqliteStore

    return SqliteStore(settings.db)


def _emulated(
    settings: Settings,
    keys: KeyStore | None,
    wait: float | None,
    count: Callable[[str], Count],
) -> World:
    from tpujob.adapters.cloud_tpu import CloudTpuSlices, Options
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.secret_files import SecretFiles
    from tpujob.adapters.ssh import SshHosts
    from tpujob.config.notify import of_local_stack
    from tpujob.domain.money import Surroundings
    from tpujob.domain.placement import EVERYWHERE

    emulator, farm = _ready(settings.emulator_ready), _ready(settings.farm_ready)
    slices = CloudTpuSlices(
        settings.project,
        endpoint=emulator["tpu"],
        options=Options(wait=wait),
        count=count("tpu"),
    )
    return World(
        open_store(settings),
        slices,
        GcsBlobs(settings.project, endpoint=emulator["storage"], count=count("storage")),
        _copies(emulator["storage"]),
        SecretFiles(settings.secrets),
        SshHosts(
            keys or settings.keys,
            port=farm["ssh_port"],
            guests=slices.guest_attributes.look,
            obstacle=slices.guest_attributes.obstacle,
        ),
        EVERYWHERE,
        settings.project,
        suffix="",
        around=Surroundings(),
        notifications=of_local_stack(settings),
    )


def _google(
    settings: Settings,
    keys: KeyStore | None,
    wait: float | None,
    count: Callable[[str], Count],
) -> World:
    from tpujob.adapters.cloud_tpu import CloudTpuSlices, Options, Throttle
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.google.secret_manager import SecretManager
    from tpujob.adapters.google.secrets import GoogleSecrets
    from tpujob.adapters.ssh import SshHosts
    from tpujob.config import context, prices
    from tpujob.domain.access import folder_of

    here = context.current(settings)
    owner = context.owner(settings, here)
    slices = CloudTpuSlices(
        here.project,
        endpoint=settings.tpu_endpoint,
        owner=owner,
        options=Options(
            network=here.network,
            subnetwork=here.subnetwork,
            external_ips=here.with_external_ips,
            tags=here.tags,
            service_account=here.service_account,
            accounts={folder_of(name): own for name, own in here.service_accounts.items()},
            labels=here.labels,
            reservation=here.reservation,
            wait=wait,
        ),
        throttle=Throttle(here.calls_per_minute),
        count=count("tpu"),
    )
    return World(
        open_store(
            replace(settings, project=here.project, store=here.store, database=here.database)
        ),
        slices,
        GcsBlobs(here.project, endpoint=settings.storage_endpoint, count=count("storage")),
        _copies(settings.storage_endpoint),
        GoogleSecrets(lambda: SecretManager(here.project, endpoint=settings.google_endpoint)),
        SshHosts(
            keys or _keys(settings, here.project, owner),
            port=settings.ssh_port,
            reach=here.ssh,
            project=here.project,
            tunnel=shlex.split(settings.tunnel),
            guests=slices.guest_attributes.look,
            obstacle=slices.guest_attributes.obstacle,
        ),
        context.site(here, owner, prices.in_force(settings, here, datetime.now(UTC).date())),
        here.project,
        suffix=f"-{owner}",
        around=_around(settings, here),
        notifications=here.notifications,
        budgets=context.budgets(here),
    )


def _around(settings: Settings, here: Context) -> Surroundings:
    from tpujob.domain.money import Surroundings

    deployed = "called" if settings.only_called else "always"
    return Surroundings(
        external_ips=here.with_external_ips,
        report_every=settings.report_every,
        cloud_run=deployed if settings.service else "",
        firestore=here.store == "firestore",
        secrets=settings.keys_in == "secret-manager",
    )


def _copies(endpoint: str) -> Copies:
    """No call is repeated, or waited for, longer than a lease allows; credentials are looked for at the first."""
    from tpujob.adapters.gcs.json_calls import google_token
    from tpujob.adapters.gcs.objects import JsonObjects
    from tpujob.data.copies import ObjectCopies

    found: list[Callable[[bool], str]] = []

    def token(new: bool) -> str:
        if endpoint:
            return ""
        if not found:
            found.append(google_token())
        return found[0](new)

    return ObjectCopies(JsonObjects(endpoint, token, patience=10.0, timeout=25.0))


def _keys(settings: Settings, project: str, owner: str) -> KeyStore:
    if settings.keys_in == "files":
        from tpujob.adapters.ssh import FileKeys

        return FileKeys(settings.keys)
    from tpujob.adapters.ssh import SecretKeys

    return SecretKeys(project, owner=owner, endpoint=settings.google_endpoint)


def _ready(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendGone(
            "the emulator is not running", hint="Start it with `tpujob up`."
        ) from error
