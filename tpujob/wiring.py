"""Settings to adapters: the only module that imports adapters, and the only one that knows laptop from cloud."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.clock import SystemClock
from tpujob.errors import BackendGone
from tpujob.settings import Settings

if TYPE_CHECKING:
    from tpujob.adapters.remote import RemoteJobs
    from tpujob.jobs import Jobs
    from tpujob.loop import Loop
    from tpujob.ports import Store
    from tpujob.stack import Access
    from tpujob.watch import Watch


def client(settings: Settings) -> RemoteJobs:
    """The way in for a command: the backend of the context over HTTP; the local one is started when it is down."""
    from tpujob import stack

    return _remote(settings, stack.ensure_backend(settings))


def running_client(settings: Settings) -> RemoteJobs | None:
    """As `client`, if the backend runs already; nothing is started."""
    from tpujob import stack

    found = stack.running_backend(settings)
    return _remote(settings, found) if found else None


def _remote(settings: Settings, access: Access) -> RemoteJobs:
    from tpujob.adapters.remote import RemoteJobs

    return RemoteJobs(access.url, access.token, log=str(settings.log_file("backend")))


@dataclass(frozen=True, slots=True)
class Backend:
    api: Jobs
    loop: Loop
    watch: Watch


def backend(settings: Settings) -> Backend:
    """The service with its adapters; its loop is not started yet. Raises BackendGone when the emulator is down."""
    import secrets
    import socket

    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.ssh import SshHosts
    from tpujob.jobs import Jobs
    from tpujob.loop import Loop
    from tpujob.reconciler import Reconciler
    from tpujob.upkeep import zones
    from tpujob.watch import Watch

    emulator, farm = _ready(settings.emulator_ready), _ready(settings.farm_ready)
    clock = SystemClock()
    store = open_store(settings)
    slices = CloudTpuSlices(settings.project, endpoint=emulator["tpu"])
    blobs = GcsBlobs(settings.project, endpoint=emulator["storage"])
    hosts = SshHosts(settings.keys, port=farm["ssh_port"])
    watch = Watch(store)
    reconciler = Reconciler(
        store,
        slices,
        hosts,
        blobs,
        clock,
        owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        report_every=settings.report_every,
        changed=watch.poke,
    )
    loop = Loop(reconciler, store, clock, zones=lambda: zones(store))
    api = Jobs(
        store,
        blobs,
        clock,
        slices=slices,
        bucket=lambda region: f"gs://tpujob-{region}",
        access=hosts.access,
        loop=loop,
        watch=watch,
        live=reconciler.live,
        circuits=reconciler.circuits,
    )
    return Backend(api, loop, watch)


def open_store(settings: Settings) -> Store:
    """Where this backend keeps its jobs. Does not connect yet."""
    if settings.store == "firestore":
        from tpujob.adapters.firestore import FirestoreStore
        from tpujob.adapters.firestore_calls import Firestore

        endpoint = settings.firestore_emulator
        database = Firestore(settings.project, settings.database, endpoint=endpoint)
        return FirestoreStore(database, mirrored=True)
    from tpujob.adapters.sqlite import SqliteStore

    return SqliteStore(settings.db)


def _ready(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendGone(
            "the emulator is not running", hint="Start it with `tpujob up`."
        ) from error
