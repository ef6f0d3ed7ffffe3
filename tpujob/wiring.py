"""Settings to adapters: the only module that imports adapters, and the only one that knows laptop from cloud."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.clock import SystemClock
from tpujob.errors import BackendGone, BadRequest, TpujobError, Unauthorized
from tpujob.settings import LOCAL, Settings

if TYPE_CHECKING:
    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.remote import RemoteJobs
    from tpujob.adapters.ssh import SshHosts
    from tpujob.adapters.ssh_keys import KeyStore
    from tpujob.domain.checkup.words import Finding
    from tpujob.domain.quota import Overview
    from tpujob.domain.site import Site
    from tpujob.jobs import Jobs
    from tpujob.loop import Loop
    from tpujob.ports import Store
    from tpujob.shapes import HostAccess
    from tpujob.stack import Access
    from tpujob.watch import Watch


def client(settings: Settings) -> RemoteJobs:
    """The way in for a command: the backend of the context over HTTP; one on this machine is started when it is down.
    Raises BackendGone; Refused when it would have no credentials for the cloud."""
    from tpujob import stack

    found = _deployed(settings) or stack.running_backend(settings)
    if found is None:
        up(settings)
    return _remote(settings, found or stack.ensure_backend(settings))


def up(settings: Settings) -> None:
    """Afterwards everything of the context that runs on this machine does. Raises as `client` does; BadRequest when
    nothing of it does."""
    from tpujob import stack

    if deployed := _deployed(settings):
        raise BadRequest(
            f"the backend of {settings.context} is deployed at {deployed.url}: it is not started here",
            hint="any command talks to it; `tpujob use local` goes back to this machine",
        )
    if settings.context != LOCAL:
        check_credentials(settings)
    stack.up(settings)


def running_client(settings: Settings) -> RemoteJobs | None:
    """As `client`, if the backend runs already; nothing is started."""
    from tpujob import stack

    found = _deployed(settings) or stack.running_backend(settings)
    return _remote(settings, found) if found else None


def _remote(settings: Settings, access: Access) -> RemoteJobs:
    from tpujob.adapters.remote import RemoteJobs

    return RemoteJobs(access.url, access.token, log=str(settings.log_file("backend")))


def deployed_at(settings: Settings) -> str:
    """The URL of the context's backend; empty: this machine runs it."""
    found = _deployed(settings)
    return found.url if found else ""


def greet(url: str, token: str) -> None:
    """Raises Unauthorized or BackendGone unless a backend answers there that takes this token."""
    from tpujob.adapters.remote import RemoteJobs

    RemoteJobs(url, token, log="").list()


def _deployed(settings: Settings) -> Access | None:
    """The backend that somebody deployed, if the context is for one. Raises NotFound for a context that is not there;
    Unauthorized without a token."""
    if settings.context == LOCAL:
        return None
    path = settings.context_file
    if path.exists() and "backend" not in path.read_text(encoding="utf-8", errors="replace"):
        return None  # seen without the parser, which takes longer than most commands
    from tpujob import context
    from tpujob.stack import Access

    found = context.current(settings)
    if not found.backend:
        return None
    if not settings.token_file.exists():
        raise Unauthorized(
            f"there is no token for {found.backend}", hint=f"tpujob use {found.backend}"
        )
    return Access(found.backend, settings.token_file.read_text(encoding="utf-8").strip())


def check_credentials(settings: Settings) -> None:
    """Raises Refused when the context's backend would have nothing to show to Google Cloud. No call is made of it."""
    from tpujob import context

    in_firestore = context.current(settings).store == "firestore"
    emulated = settings.tpu_endpoint and settings.storage_endpoint
    if emulated and (settings.firestore_emulator or not in_firestore):
        return
    from tpujob.adapters import google_default

    google_default.check(f"the context {settings.context}")


@contextlib.contextmanager
def blobs(settings: Settings, project: str) -> Generator[GcsBlobs]:
    """Cloud Storage as a context of that project sees it, from this process."""
    from tpujob.adapters.gcs import GcsBlobs

    made = GcsBlobs(project, endpoint=settings.storage_endpoint)
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True, slots=True)
class Backend:
    api: Jobs
    loop: Loop
    watch: Watch


@dataclass(frozen=True, slots=True)
class _World:
    """What the service runs in: the emulator, or Google Cloud."""

    store: Store
    slices: CloudTpuSlices
    blobs: GcsBlobs
    hosts: SshHosts
    site: Site


def backend(settings: Settings) -> Backend:
    """The service with its adapters; its loop is not started yet. Raises BackendGone when the emulator is down,
    NotFound or BadSpec when there is no such context or something is wrong with it."""
    import secrets
    import socket

    from tpujob.jobs import Jobs
    from tpujob.loop import Loop
    from tpujob.reconciler import Reconciler
    from tpujob.upkeep import zones
    from tpujob.watch import Watch

    world = _emulated(settings) if settings.context == LOCAL else _google(settings)
    clock, store = SystemClock(), world.store
    watch = Watch(store)
    reconciler = Reconciler(
        store,
        world.slices,
        world.hosts,
        world.blobs,
        clock,
        owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        report_every=settings.report_every,
        changed=watch.poke,
    )
    loop = Loop(reconciler, store, clock, zones=lambda: zones(store, world.site.zones))
    api = Jobs(
        store,
        world.blobs,
        clock,
        slices=world.slices,
        site=world.site,
        access=world.hosts.access,
        loop=loop,
        watch=watch,
        live=reconciler.live,
        circuits=reconciler.circuits,
        hosts=world.hosts,
    )
    return Backend(api, loop, watch)


def _emulated(settings: Settings) -> _World:
    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.ssh import SshHosts
    from tpujob.domain.site import EVERYWHERE

    emulator, farm = _ready(settings.emulator_ready), _ready(settings.farm_ready)
    slices = CloudTpuSlices(settings.project, endpoint=emulator["tpu"])
    return _World(
        open_store(settings),
        slices,
        GcsBlobs(settings.project, endpoint=emulator["storage"]),
        SshHosts(
            settings.keys,
            port=farm["ssh_port"],
            guests=slices.guests.look,
            obstacle=slices.guests.obstacle,
        ),
        EVERYWHERE,
    )


def _google(settings: Settings) -> _World:
    from tpujob import context
    from tpujob.adapters.cloud_tpu import CloudTpuSlices
    from tpujob.adapters.cloud_tpu_request import Options
    from tpujob.adapters.cloud_tpu_throttle import Throttle
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.ssh import SshHosts

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
            labels=here.labels,
            reservation=here.reservation,
        ),
        throttle=Throttle(here.calls_per_minute),
    )
    return _World(
        open_store(
            replace(settings, project=here.project, store=here.store, database=here.database)
        ),
        slices,
        GcsBlobs(here.project, endpoint=settings.storage_endpoint),
        SshHosts(
            _keys(settings, here.project, owner),
            port=settings.ssh_port,
            reach=here.ssh,
            project=here.project,
            tunnel=shlex.split(settings.tunnel),
            guests=slices.guests.look,
            obstacle=slices.guests.obstacle,
        ),
        context.site(here, owner),
    )


def _keys(settings: Settings, project: str, owner: str) -> KeyStore:
    if settings.keys_in == "files":
        from tpujob.adapters.ssh_keys import FileKeys

        return FileKeys(settings.keys)
    from tpujob.adapters.ssh_secrets import SecretKeys

    return SecretKeys(project, owner=owner, endpoint=settings.google_endpoint)


def open_session(settings: Settings, access: HostAccess, command: list[str] | None) -> int:
    """`tpujob ssh`, from this machine and with this user's rights; see `ssh_session`."""
    from tpujob.adapters import ssh_session

    def secret(name: str) -> str:
        from tpujob.adapters.ssh_secrets import SecretKeys

        return SecretKeys(access["project"], endpoint=settings.google_endpoint).read(name)

    tunnel = shlex.split(settings.tunnel)
    return ssh_session.open_session(access, command, tunnel=tunnel, secret=secret)


def open_store(settings: Settings) -> Store:
    """Where this backend keeps its jobs. Does not connect yet."""
    if settings.store == "firestore":
        from tpujob.adapters.firestore import FirestoreStore
        from tpujob.adapters.firestore_calls import Firestore

        endpoint = settings.firestore_emulator
        database = Firestore(settings.project, settings.database, endpoint=endpoint)
        # a listener does not hear what happens while its process stands still
        return FirestoreStore(database, mirrored=not settings.only_called)
    from tpujob.adapters.sqlite import SqliteStore

    return SqliteStore(settings.db)


def findings(settings: Settings) -> list[Finding]:
    """Whether the context is fit for running jobs, and this machine for its part in it. Nothing is started or changed.
    Raises NotFound or BadSpec when there is no such context or something is wrong with its file."""
    from tpujob.adapters import google_project, this_machine
    from tpujob.domain.checkup import cloud, machine

    software = this_machine.software()
    found = [machine.check_python(software), machine.check_packages(software)]
    if settings.context == LOCAL:
        from tpujob import stack

        running = {part.name: part.ready is not None for part in stack.status(settings)}
        return found + machine.check_laptop(this_machine.laptop(settings.state, running))
    from tpujob import context

    here = context.current(settings)
    if here.backend:
        found.append(machine.check_backend(here.backend, _trouble_with(settings)))
    if here.project:
        wants = google_project.wants_of(here)
        endpoints = {"endpoint": settings.google_endpoint, "tpu_endpoint": settings.tpu_endpoint}
        found += cloud.examine(wants, google_project.look(wants, **endpoints))
    return found


def _trouble_with(settings: Settings) -> TpujobError | None:
    """What asking the context's deployed backend comes to; None: it answers."""
    try:
        if deployed := _deployed(settings):
            greet(deployed.url, deployed.token)
    except TpujobError as error:
        return error
    return None


def quotas(settings: Settings, *, everywhere: bool = False) -> Overview:
    """What may be held where, and what is; in the context's zones, or `everywhere`. Raises BadRequest for a context
    without a project, BackendGone when the emulator is down, else Refused or Transient."""
    if settings.context == LOCAL:
        from tpujob.adapters import emulated_quota
        from tpujob.emulator.client import EmulatorClient

        status = EmulatorClient.from_ready(settings.emulator_ready).status()
        return emulated_quota.overview(status, everywhere=everywhere)
    from tpujob import context
    from tpujob.adapters import google_project, google_quota

    here = context.current(settings)
    if not here.project:
        raise BadRequest(
            f"the context {here.name} does not say which project its backend uses",
            hint=f"write `project:` into {settings.context_file}",
        )
    return google_quota.overview(
        google_project.wants_of(here),
        SystemClock().now(),
        everywhere=everywhere,
        endpoint=settings.google_endpoint,
        tpu_endpoint=settings.tpu_endpoint,
    )


def _ready(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendGone(
            "the emulator is not running", hint="Start it with `tpujob up`."
        ) from error
