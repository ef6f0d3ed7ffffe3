"""Everything that is looked at of a project, and which checks a context gets, in the order in which cures help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpujob.doctor import access, machine, network, places
from tpujob.doctor.access import Database, Identity, NoIdentity, Project
from tpujob.doctor.findings import Finding, NotSeen
from tpujob.doctor.network import FirewallRule, Network, Subnetwork
from tpujob.doctor.places import Addresses
from tpujob.doctor.quota import Limit
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
    """A finding for each thing that the context's jobs need of the project. Without credentials that is the only one.
    The rights of a deployed backend are its own and cannot be seen from here."""
    if isinstance(seen.identity, NoIdentity):
        if not context.backend:
            return [access.check_identity(seen.identity)]
        why = f"{seen.identity.why}, to look at the project of the backend with"
        return [access.check_identity(NotSeen(why, LOGIN))]
    found = [
        access.check_identity(seen.identity),
        machine.check_clock(seen.ahead_s),
        access.check_project(context, seen.project),
        access.check_services(context, seen.services),
    ]
    if not context.backend:
        found += _rights(context, seen)
    for zone in context.every_zone:
        found.append(places.check_types(context, zone, seen.types[zone]))
        found.append(places.check_quota(context, zone, seen.limits))
    found += places.check_buckets(context, seen.buckets)
    found.append(network.check_network(context, seen.network))
    if seen.network is not None:
        for region in context.every_region:
            subnetwork = seen.subnetworks[region]
            found.append(network.check_way_out(context, region, subnetwork))
            if isinstance(subnetwork, Subnetwork):
                found.append(network.check_between_hosts(context, region, subnetwork, seen.rules))
        found.append(network.check_ssh(context, seen.rules))
    if context.with_external_ips:
        found += [
            places.check_addresses(context, r, seen.addresses[r]) for r in context.every_region
        ]
    if context.store == "firestore":
        found.append(access.check_database(context, seen.database))
    return found


def _rights(context: Context, seen: ProjectSeen) -> list[Finding]:
    """The rights of the user who runs doctor; the backend on this machine has the same."""
    principal = seen.identity.principal if isinstance(seen.identity, Identity) else ""
    return [
        access.check_permissions(context, seen.permissions, principal),
        access.check_service_account(context, seen.service_account, principal),
        *(
            access.check_bucket_permissions(url, granted, principal)
            for url, granted in seen.objects.items()
            if seen.buckets.get(url) is not None  # a missing bucket has a finding of its own
        ),
    ]
