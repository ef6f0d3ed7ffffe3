"""Everything that is looked at of a project, and which checks a context gets, in the order in which cures help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tpujob.doctor import access, machine, network, zones
from tpujob.doctor.access import Database, Identity, NoIdentity, Project
from tpujob.doctor.findings import Finding, NotSeen, judged
from tpujob.doctor.network import FirewallRule, Network, Subnetwork
from tpujob.doctor.quota import Limit
from tpujob.doctor.zones import Addresses
from tpujob.errors import LOGIN
from tpujob.ports import BucketFacts

if TYPE_CHECKING:
    from tpujob.config.context import Context


@dataclass(frozen=True, slots=True)
class ProjectSeen:
    """What was seen of a project. None: it is positively not there. Maps are by what the context names: zones, regions,
    and URLs of buckets."""

    identity: Identity | NoIdentity | NotSeen
    project: Project | NotSeen | None
    services: frozenset[str] | NotSeen
    permissions: frozenset[str] | NotSeen
    service_account: frozenset[str] | NotSeen | None
    limits: Sequence[Limit] | NotSeen
    network: Network | NotSeen | None
    rules: Sequence[FirewallRule] | NotSeen
    ahead_s: float | NotSeen  #: this machine's clock
    types: Mapping[str, frozenset[str] | NotSeen]
    addresses: Mapping[str, Addresses | NotSeen]
    subnetworks: Mapping[str, Subnetwork | NotSeen | None]
    buckets: Mapping[str, BucketFacts | NotSeen | None]
    objects: Mapping[str, frozenset[str] | NotSeen]  #: permissions on a bucket's objects
    database: Database | NotSeen | None


def examine(context: Context, seen: ProjectSeen) -> list[Finding]:
    """Return a finding for each thing that the context's jobs need of the project; without credentials only that one.
    The rights of a deployed backend are its own and cannot be read from here."""
    identity, project = seen.identity, seen.project
    alone = isinstance(identity, NoIdentity)
    if isinstance(identity, NoIdentity) and context.backend:
        identity = NotSeen(f"{identity.why}, to look at the project of the backend with", LOGIN)
    found = [judged("credentials", identity, access.check_identity)]
    if alone:
        return found
    if isinstance(project, NotSeen) and not project.cure:
        project = replace(project, cure="gcloud projects list")
    found += [
        judged("clock", seen.ahead_s, machine.check_clock),
        judged("project", project, partial(access.check_project, context)),
        judged("APIs", seen.services, partial(access.check_services, context)),
    ]
    if not context.backend:
        found += _rights(context, seen)
    for zone in context.every_zone:
        types, quota = (partial(c, context, zone) for c in (zones.check_types, zones.check_quota))
        found.append(judged(f"types {zone}", seen.types[zone], types))
        found.append(judged(f"quota {zone}", seen.limits, quota))
    found += zones.check_buckets(context, seen.buckets)
    found.append(judged("network", seen.network, partial(network.check_network, context)))
    if seen.network is not None:
        for region in context.every_region:
            found += _subnetwork(context, region, seen)
        found.append(network.check_ssh(context, seen.rules).named("SSH"))
    if context.with_external_ips:
        for region in context.every_region:
            check = partial(zones.check_addresses, context, region)
            found.append(judged(f"addresses {region}", seen.addresses[region], check))
    if context.store == "firestore":
        found.append(judged("Firestore", seen.database, partial(access.check_database, context)))
    return found


def _subnetwork(context: Context, region: str, seen: ProjectSeen) -> list[Finding]:
    """The way out of a region, and between its hosts."""
    there = seen.subnetworks[region]
    check = partial(network.check_way_out, context, region)
    found = [judged(f"way out {region}", there, check)]
    if isinstance(there, Subnetwork):
        check = partial(network.check_between_hosts, context, there)
        found.append(judged(f"hosts {region}", seen.rules, check))
    return found


def _rights(context: Context, seen: ProjectSeen) -> list[Finding]:
    """The rights of the user who runs doctor; the backend on this machine has the same."""
    who = seen.identity.principal if isinstance(seen.identity, Identity) else ""
    granted = partial(access.check_permissions, context, principal=who)
    account = partial(access.check_service_account, context, principal=who)
    return [
        judged("permissions", seen.permissions, granted),
        judged("hosts' account", seen.service_account, account),
        *(
            judged("objects", objects, partial(access.check_bucket_permissions, url, principal=who))
            for url, objects in seen.objects.items()
            if seen.buckets.get(url) is not None  # a missing bucket has a finding of its own
        ),
    ]
