"""Everything that is looked at of a project, and which checks a context gets, in the order in which cures help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob.doctor import access, machine, network, places
from tpujob.doctor.access import Database, Identity, NoIdentity, Project
from tpujob.doctor.findings import Finding, NotSeen, Wants
from tpujob.doctor.network import Network, Rule, Subnetwork
from tpujob.doctor.places import Addresses
from tpujob.doctor.quota import Limit
from tpujob.errors import LOGIN
from tpujob.ports import BucketFacts


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
    rules: Sequence[Rule] | NotSeen
    ahead_s: float | NotSeen  #: this machine's clock
    types: Mapping[str, frozenset[str] | NotSeen]
    addresses: Mapping[str, Addresses | NotSeen]
    subnetworks: Mapping[str, Subnetwork | NotSeen | None]
    buckets: Mapping[str, BucketFacts | NotSeen | None]
    objects: Mapping[str, frozenset[str] | NotSeen]  #: permissions on a bucket's objects
    database: Database | NotSeen | None


def examine(wants: Wants, seen: ProjectSeen) -> list[Finding]:
    """A finding for each thing that the context's jobs need of the project. Without credentials that is the only one.
    The rights of a deployed backend are its own and cannot be seen from here."""
    if isinstance(seen.identity, NoIdentity):
        if not wants.deployed:
            return [access.check_identity(seen.identity)]
        why = f"{seen.identity.why}, to look at the project of the backend with"
        return [access.check_identity(NotSeen(why, LOGIN))]
    found = [
        access.check_identity(seen.identity),
        machine.check_clock(seen.ahead_s),
        access.check_project(wants, seen.project),
        access.check_services(wants, seen.services),
    ]
    if not wants.deployed:
        found += _rights(wants, seen)
    for zone in wants.all_zones:
        found.append(places.check_types(wants, zone, seen.types[zone]))
        found.append(places.check_quota(wants, zone, seen.limits))
    found += places.check_buckets(wants, seen.buckets)
    found.append(network.check_network(wants, seen.network))
    if seen.network is not None:
        for region in wants.regions:
            found.append(network.check_way_out(wants, region, seen.subnetworks[region]))
        found.append(network.check_ssh(wants, seen.rules))
    if wants.external_ips:
        found += [places.check_addresses(wants, r, seen.addresses[r]) for r in wants.regions]
    if wants.firestore:
        found.append(access.check_database(wants, seen.database))
    return found


def _rights(wants: Wants, seen: ProjectSeen) -> list[Finding]:
    """The rights of the user who runs doctor; the backend on this machine has the same."""
    principal = seen.identity.principal if isinstance(seen.identity, Identity) else ""
    return [
        access.check_permissions(wants, seen.permissions, principal),
        access.check_service_account(wants, seen.service_account, principal),
        *(
            access.check_bucket_permissions(url, granted, principal)
            for url, granted in seen.objects.items()
            if seen.buckets.get(url) is not None  # a missing bucket has a finding of its own
        ),
    ]
