"""`tpujob doctor --probe`: the adapters of a context become the cloud that probes look at, in this process, with this
user's credentials. The probes are in `doctor/probe/`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.adapters.clock import SystemClock
from tpujob.config.settings import Settings
from tpujob.doctor.probe.record import Made, Records, bare_slice
from tpujob.doctor.probe.spend import LEFT_OVER, PROBE_JOB, Budget, Choice, budget, choose
from tpujob.domain.hardware.accelerators import region_of
from tpujob.errors import BadRequest, Refused, TpujobError
from tpujob.wiring.world import World, world

if TYPE_CHECKING:
    from tpujob.adapters.probed import GoogleCloud
    from tpujob.doctor.probe.redact import Redactor
    from tpujob.doctor.probe.run import Report
    from tpujob.doctor.probe.verdicts import Result

#: seconds to ask one zone what it offers
CATALOG_PATIENCE = 20.0
#: seconds between two looks at a slice
POLL = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for."""

    type: str = ""
    zone: str = ""
    cap: float = 1.0
    wait: float = 600.0  #: seconds for capacity
    poll: float = POLL  #: seconds between two looks at the slice
    also: tuple[str, ...] = ()  #: probes that are not tried unless they are named


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything is chosen, and nothing is spent yet."""

    context: str
    choice: Choice
    budget: Budget
    run: Callable[[Path, Callable[[Result], None]], Report]


@contextlib.contextmanager
def prepared(settings: Settings, wanted: Wanted, say: Callable[[str], None]) -> Generator[Prepared]:
    """What earlier probes left is removed first. Nobody else probes this context meanwhile. Raises BadRequest,
    Refused, Transient; NotFound or BadSpec for the context."""
    from tpujob.adapters.cloud_tpu import Catalog
    from tpujob.doctor.probe import table

    _check_context(settings)
    records = _records(settings)
    with records.locked(), _cloud(settings, wanted.wait) as (found, cloud):
        _clear(records, cloud, say)
        zones = found.site.zones or Catalog(cloud.slices.api).zones(timeout=CATALOG_PATIENCE)
        choice = choose(_offered(cloud, zones, wanted, say), wanted.type, wanted.zone)
        chosen = table.chosen(wanted.also)
        allowed = budget(choice, wanted.cap, max(probe.slices for probe in chosen))
        _clear_by_label(cloud, choice.zone, say)

        def run(folder: Path, show: Callable[[Result], None]) -> Report:
            from tpujob.doctor.probe import run as running
            from tpujob.doctor.probe.probing import Probing

            name = f"tj-probe-{secrets.token_hex(3)}{found.suffix}"
            bucket = found.site.buckets.get(region_of(choice.zone), "")
            now = SystemClock().now()
            probing = Probing(
                cloud=cloud,
                clock=SystemClock(),
                choice=choice,
                budget=allowed,
                slice=replace(
                    bare_slice(name, choice.zone, now),
                    type=choice.type,
                    runtime_version=choice.runtime_version,
                    usd_per_hour=choice.usd_per_hour,
                ),
                workdir=f"{bucket}/probes/{name}" if bucket else "",
                project=found.project,
                wait=wanted.wait,
                poll=wanted.poll,
                say=say,
            )
            made = Made(
                run=name,
                names=probing.names(),
                zone=choice.zone,
                type=choice.type,
                usd_per_hour=choice.usd_per_hour,
                started_at=now,
                workdir=probing.workdir,
            )
            return running.run(
                probing, records, made, folder, _redactor(settings, found), show, chosen
            )

        yield Prepared(settings.context, choice, allowed, run)


def left_over(settings: Settings) -> list[Made]:
    """What probes of this context have left that are gone. None while one runs. Raises StoreError."""
    records = _records(settings)
    if not records.all():
        return []
    with contextlib.suppress(BadRequest), records.locked():
        return records.all()
    return []


def clear(settings: Settings, say: Callable[[str], None]) -> list[str]:
    """Remove what probes of this context have left. Returns the names of what is still there. Raises as `prepared`."""
    if not left_over(settings):
        return []
    records = _records(settings)
    with records.locked(), _cloud(settings, None) as (_, cloud):
        return _clear(records, cloud, say)


def _clear(records: Records, cloud: GoogleCloud, say: Callable[[str], None]) -> list[str]:
    from tpujob.doctor.probe import run as running

    left: list[str] = []
    for made in records.all():
        say(f"a probe that was cut off has left {made.names[0]} in {made.zone}: removing it first")
        names = {name: name == made.run for name in made.names}
        still = running.remove(cloud, made, names, SystemClock(), say, POLL)
        left += still
        if not still:
            records.drop(made)
            say(f"{made.names[0]} is gone")
    return left


def _clear_by_label(cloud: GoogleCloud, zone: str, say: Callable[[str], None]) -> None:
    """What carries the marks of a probe, has no record here, and is older than any run: another machine made it, or
    the state was removed. Never raises: the sweep of a backend finds it, too."""
    now = SystemClock().now()
    with contextlib.suppress(TpujobError):
        for one in cloud.owned([zone], timeout=CATALOG_PATIENCE):
            if one.job_id == PROBE_JOB and now - one.created_at > LEFT_OVER:
                say(f"{one.name} in {one.zone} was left by a probe: removing it")
                cloud.delete(bare_slice(one.name, one.zone, now), timeout=CATALOG_PATIENCE)


def _offered(
    cloud: GoogleCloud, zones: tuple[str, ...], wanted: Wanted, say: Callable[[str], None]
) -> Mapping[str, list[str]]:
    """The types that each zone lists. Raises Refused when no zone may be used, in the first one's words."""
    from tpujob.adapters.cloud_tpu import Catalog

    catalog, found, refused = Catalog(cloud.slices.api), dict[str, list[str]](), list[Refused]()
    asked = (wanted.zone,) if wanted.zone else zones
    for zone in asked:
        try:
            found[zone] = sorted(catalog.known(zone, timeout=CATALOG_PATIENCE).types)
        except Refused as error:
            refused.append(error)
    if not found and refused:
        raise refused[0]
    for error in refused:
        say(error.message)
    return found


def _check_context(settings: Settings) -> None:
    """Raises BadRequest where the backend, and with it the credentials, are not on this machine."""
    if settings.local:
        return
    from tpujob.config import context

    if context.current(settings).backend:
        raise BadRequest(
            f"the backend of {settings.context} is deployed, and probes need a project's own context",
            hint="tpujob init --name probe --project PROJECT --zone ZONE",
        )


@contextlib.contextmanager
def _cloud(settings: Settings, wait: float | None) -> Generator[tuple[World, GoogleCloud]]:
    from tpujob.adapters.google.rest import GoogleRest
    from tpujob.adapters.probed import GoogleCloud
    from tpujob.adapters.ssh import FileKeys

    keys = FileKeys(settings.home / "probes" / "keys")  # the sweep removes keys that no job has
    found = world(settings, keys=keys, wait=wait)
    credentials, google = _credentials(settings), None
    if credentials is not None or settings.google_endpoint:
        google = GoogleRest(found.project, credentials, endpoint=settings.google_endpoint)
    cloud = GoogleCloud(found.slices, found.hosts, found.blobs, google, found.site.made_on_demand)
    try:
        yield found, cloud
    finally:
        cloud.close()


def _credentials(settings: Settings) -> Any:
    """Those of this user; None where emulators stand for Google. Raises Refused without any."""
    from tpujob.adapters.google import identity
    from tpujob.doctor.access import NoIdentity
    from tpujob.domain.model import Cause
    from tpujob.errors import LOGIN

    if settings.local or settings.tpu_endpoint or settings.google_endpoint:
        return None
    credentials, who = identity.find()
    if isinstance(who, NoIdentity):
        raise Refused(who.why, cause=Cause.PERMISSION, hint=LOGIN)
    return credentials


def _records(settings: Settings) -> Records:
    return Records(settings.home / "probes")


def _redactor(settings: Settings, found: World) -> Redactor:
    from tpujob.doctor.probe.redact import Redactor

    known = {
        found.project: "project",
        found.suffix.strip("-"): "owner",
        settings.user: "user",
        socket.gethostname(): "machine",
        os.path.expanduser("~"): "home",
        **{bucket.removeprefix("gs://").partition("/")[0]: "bucket" for bucket in found.site.buckets.values()},
    }  # fmt: skip
    return Redactor({text: word for text, word in known.items() if len(text) > 2})
