"""Builds the adapters of the service from a context's settings: for the emulator, or for Google Cloud.

A backend of the local stack differs from one of the cloud by what this room builds, and nowhere else.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.config.settings import Settings
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.errors import BackendGone
from tpujob.ports import Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tpujob.adapters.calling import Count
    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.firestore import FirestoreStore
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.sqlite import SqliteStore
    from tpujob.adapters.ssh import KeyStore, SshHosts
    from tpujob.config.context import Context
    from tpujob.config.notifications import NotificationSettings
    from tpujob.data.copies import ObjectCopies
    from tpujob.domain.capacity.settings import QueueSettings
    from tpujob.domain.capacity.site import Site
    from tpujob.domain.money.estimate_shapes import Surroundings
    from tpujob.domain.money.shared import SharedBudget
    from tpujob.engine import Counters
    from tpujob.ports import Guests, Secrets, TokenLender

    Store = SqliteStore | FirestoreStore


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of the service, and the settings of its context."""

    store: Store
    providers: Mapping[str, Provider]  #: by `Slice.provider`
    owner: str  #: what slices are labelled with
    blobs: GcsBlobs
    copies: ObjectCopies
    lender: TokenLender
    secrets: Secrets
    hosts: SshHosts
    site: Site
    project: str
    surroundings: Surroundings  #: cost of the backend's services beside slices
    notifications: NotificationSettings
    queue: QueueSettings
    budgets: tuple[SharedBudget, ...] = ()
    accounts: Collection[str] = ()  #: users whose programs have a service account of their own

    def close(self) -> None:
        """Close the store and every connection."""
        for adapter in (*self.providers.values(), self.hosts, self.blobs, self.copies, self.store):
            adapter.close()


def world(settings: Settings, counters: Counters) -> Adapters:
    """Return the context's adapters, whose calls `counters` count. Raises BackendGone if the emulator is down, NotFound
    or BadSpec if the context is missing or invalid."""
    return (_emulated if settings.local else _google)(settings, counting(counters))


def counting(counters: Counters) -> Callable[[str], Count]:
    """Return a function that makes, for a service, the callback with which its adapter counts calls."""
    return lambda service: (
        lambda method, outcome: counters.calls.labels(service, method, outcome).inc()
    )


def open_store(settings: Settings) -> Store:
    """Return the store of this backend's jobs, without connecting to Firestore yet. Raises StoreError if a file is not
    the store that the context used before."""
    if settings.store == "firestore":
        from tpujob.adapters.firestore import Firestore, FirestoreStore

        endpoint = settings.firestore_emulator
        database = Firestore(settings.project, settings.database, endpoint=endpoint)
        # a listener misses changes while its process is paused
        return FirestoreStore(database, mirrored=not settings.only_called)
    from tpujob.wiring.store import open_file

    return open_file(settings)


def _emulated(settings: Settings, count: Callable[[str], Count]) -> Adapters:
    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.gcs import GcsBlobs, GcsLender
    from tpujob.adapters.secret_files import SecretFiles
    from tpujob.adapters.ssh import SshHosts
    from tpujob.config import queue
    from tpujob.config.notifications import of_local_stack
    from tpujob.domain.capacity.site import EVERYWHERE
    from tpujob.domain.money.estimate_shapes import Surroundings

    emulator, farm = _ready(settings.ready_file("emulator")), _ready(settings.ready_file("farm"))
    slices = CloudTpuSlices(
        settings.project,
        endpoint=emulator["tpu"],
        rest_endpoint=emulator["tpu_rest"],
        count=count("tpu"),
    )
    providers = {CLOUD_TPU: _cloud_tpu(slices)}
    return Adapters(
        open_store(settings),
        providers,
        slices.owner,
        GcsBlobs(settings.project, endpoint=emulator["storage"], count=count("storage")),
        _copies(emulator["storage"]),
        GcsLender(emulator["storage"]),
        SecretFiles(settings.secrets),
        SshHosts(settings.keys, port=farm["ssh_port"], guests=_guests(providers)),
        EVERYWHERE,
        settings.project,
        surroundings=Surroundings(emulated=True),
        notifications=of_local_stack(settings),
        queue=queue.of_local_stack(settings),
    )


def _google(settings: Settings, count: Callable[[str], Count]) -> Adapters:
    from tpujob.adapters.gcs import GcsBlobs, GcsLender
    from tpujob.adapters.google.secrets import GoogleSecrets, SecretManager
    from tpujob.adapters.ssh import SshHosts
    from tpujob.config import context, prices
    from tpujob.config.queue import queue_settings

    current = context.current(settings)
    owner = context.owner(settings, current)
    region, google = current.secret_region, settings.google_endpoint
    providers = {CLOUD_TPU: _cloud_tpu(_slices(settings, current, owner, count("tpu")))}
    store = open_store(
        replace(settings, project=current.project, store=current.store, database=current.database)
    )
    return Adapters(
        store,
        providers,
        owner,
        GcsBlobs(current.project, endpoint=settings.storage_endpoint, count=count("storage")),
        _copies(settings.storage_endpoint),
        GcsLender(settings.storage_endpoint),
        GoogleSecrets(lambda: SecretManager(current.project, region=region, endpoint=google)),
        SshHosts(
            _keys(settings, store, current, owner),
            port=settings.ssh_port,
            reach=current.ssh,
            project=current.project,
            tunnel=shlex.split(settings.tunnel),
            guests=_guests(providers),
        ),
        context.site(current, owner, prices.in_force(settings, current, datetime.now(UTC).date())),
        current.project,
        surroundings=_around(settings, current),
        notifications=current.notifications,
        queue=queue_settings(current.queue),
        budgets=context.budgets(current),
        accounts=current.service_accounts,
    )


def _cloud_tpu(slices: CloudTpuSlices) -> Provider:
    return Provider(slices, slices.catalog, slices.guest_attributes, slices.close)


def _guests(providers: Mapping[str, Provider]) -> dict[str, Guests]:
    return {name: provider.guests for name, provider in providers.items()}


def _slices(settings: Settings, context: Context, owner: str, count: Count) -> CloudTpuSlices:
    from tpujob.adapters.cloud_tpu import CloudTpuSlices, Options, Throttle, creates

    return CloudTpuSlices(
        context.project,
        endpoint=settings.tpu_endpoint,
        owner=owner,
        options=Options(
            network=context.network,
            subnetwork=context.subnetwork,
            external_ips=context.with_external_ips,
            secure_boot=context.secure_boot,
            tags=context.tags,
            service_account=context.service_account,
            accounts=context.service_accounts,
            labels=context.labels,
            reservation=context.reservation,
        ),
        throttle=Throttle(context.calls_per_minute),
        creating=creates(context.creates_per_minute),
        count=count,
    )


def _around(settings: Settings, context: Context) -> Surroundings:
    from tpujob.domain.money.estimate_shapes import Surroundings

    deployed = "called" if settings.only_called else "always"
    return Surroundings(
        external_ips=context.with_external_ips,
        report_every=settings.report_every,
        cloud_run=deployed if settings.service else "",
        firestore=context.store == "firestore",
    )


def _copies(endpoint: str) -> ObjectCopies:
    """Return the adapter that copies objects; retries and waits end within a lease. The first call loads
    credentials."""
    from tpujob.adapters.gcs.objects import JsonObjects
    from tpujob.data.copies import ObjectCopies

    return ObjectCopies(JsonObjects(endpoint, patience=10.0, timeout=25.0))


def _keys(settings: Settings, store: Store, context: Context, owner: str) -> KeyStore:
    """Return keys in files, as the settings say or as the store keeps no book of them; else from Secret Manager."""
    from tpujob.adapters.firestore import FirestoreStore
    from tpujob.adapters.ssh import FileKeys, SecretKeys

    if settings.keys_in == "files" or not isinstance(store, FirestoreStore):
        return FileKeys(settings.keys)
    places = {"region": context.secret_region, "endpoint": settings.google_endpoint}
    return SecretKeys(context.project, store.host_keys, owner=owner, **places)


def _ready(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendGone(
            "the emulator is not running", hint="Start it with `tpujob up`."
        ) from error
