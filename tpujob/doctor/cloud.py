"""The facts that are read of a project, and the checks of a context, in the order in which cures help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tpujob.doctor import access, machine, network, policies, zones
from tpujob.doctor.access import Database, Identity, NoIdentity, Project
from tpujob.doctor.findings import Finding, NotSeen, judged
from tpujob.doctor.network import FirewallRule, Network, Subnetwork
from tpujob.doctor.policies import Policy
from tpujob.doctor.zones import Addresses
from tpujob.errors import LOGIN
from tpujob.ports import BucketFacts, Limit

if TYPE_CHECKING:
    from tpujob.config.context import Context


@dataclass(frozen=True, slots=True)
class ProjectSeen:
    """The facts that were read of a project. None: the thing does not exist. Keys of maps are the names in the context:
    zones, regions, and URLs of buckets."""

    identity: Identity | NoIdentity | NotSeen
    project: Project | NotSeen | None
    services: frozenset[str] | NotSeen
    permissions: frozenset[str] | NotSeen
    service_account: frozenset[str] | NotSeen | None
    limits: Sequence[Limit] | NotSeen
    network: Network | NotSeen | None
    rules: Sequence[FirewallRule] | NotSeen
    ahead_s: float | NotSeen  #: seconds by which this machine's clock is ahead of Google's
    types: Mapping[str, frozenset[str] | NotSeen]
    addresses: Mapping[str, Addresses | NotSeen]
    subnetworks: Mapping[str, Subnetwork | NotSeen | None]
    buckets: Mapping[str, BucketFacts | NotSeen | None]
    objects: Mapping[str, frozenset[str] | NotSeen]  #: permissions on the objects of each bucket
    database: Database | NotSeen | None
    policies: Mapping[str, Policy | NotSeen]  #: of the organization, by name


def examine(context: Context, seen: ProjectSeen) -> list[Finding]:
    """Return a finding for each check of the context; without credentials only that of the credentials. The permissions
    of a deployed backend cannot be read from this machine and are not checked."""
    identity, project = seen.identity, seen.project
    if isinstance(identity, NoIdentity):
        if context.backend:
            why = f"{identity.why}, to look at the project of the backend with"
            identity = NotSeen(why, LOGIN)
        return [judged("credentials", identity, access.check_identity)]
    findings = [judged("credentials", identity, access.check_identity)]
    if isinstance(project, NotSeen) and not project.cure:
        project = replace(project, cure="gcloud projects list")
    findings += [
        judged("clock", seen.ahead_s, machine.check_clock),
        judged("project", project, partial(access.check_project, context)),
        judged("APIs", seen.services, partial(access.check_services, context)),
    ]
    findings += [f.named("policies") for f in policies.check_policies(context, seen.policies)]
    if not context.backend:
        findings += _check_permissions(context, seen)
    for zone in context.every_zone:
        check = partial(zones.check_types, context, zone)
        findings.append(judged(f"types {zone}", seen.types[zone], check))
        check = partial(zones.check_quota, context, zone)
        findings.append(judged(f"quota {zone}", seen.limits, check))
    findings += zones.check_buckets(context, seen.buckets)
    findings.append(judged("network", seen.network, partial(network.check_network, context)))
    if seen.network is not None:
        for region in context.every_region:
            findings += _check_subnetwork(context, region, seen)
        findings.append(network.check_ssh(context, seen.rules).named("SSH"))
    if context.with_external_ips:
        for region in context.every_region:
            check = partial(zones.check_addresses, context, region)
            findings.append(judged(f"addresses {region}", seen.addresses[region], check))
    if context.store == "firestore":
        findings.append(judged("Firestore", seen.database, partial(access.check_database, context)))
    return findings


def _check_subnetwork(context: Context, region: str, seen: ProjectSeen) -> list[Finding]:
    """Check that hosts of a region reach other machines, and each other."""
    subnetwork = seen.subnetworks[region]
    check = partial(network.check_way_out, context, region)
    findings = [judged(f"way out {region}", subnetwork, check)]
    if isinstance(subnetwork, Subnetwork):
        check = partial(network.check_between_hosts, context, subnetwork)
        findings.append(judged(f"hosts {region}", seen.rules, check))
    return findings


def _check_permissions(context: Context, seen: ProjectSeen) -> list[Finding]:
    """Check the permissions of the user who runs doctor; the backend on this machine has the same."""
    user = seen.identity.principal if isinstance(seen.identity, Identity) else ""
    check = partial(access.check_permissions, context, principal=user)
    findings = [judged("permissions", seen.permissions, check)]
    check = partial(access.check_service_account, context, principal=user)
    findings.append(judged("hosts' account", seen.service_account, check))
    for url, permissions in seen.objects.items():
        if seen.buckets.get(url) is not None:  # a missing bucket has a finding already
            check = partial(access.check_bucket_permissions, url, principal=user)
            findings.append(judged("objects", permissions, check))
    return findings
