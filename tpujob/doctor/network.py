"""How hosts are reached and what they reach: network, subnetwork, firewall, and the way out without an address.

Firewall policies of a folder or organisation are not looked at: they can close what a rule opens.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, NotSeen, fail, listed, ok, unknown, warn

if TYPE_CHECKING:
    from tpujob.config.context import Context

SSH_PORT = 22
#: where the tunnels of Identity-Aware Proxy come from (Google's page "Using IAP for TCP forwarding")
IAP_RANGE = "35.235.240.0/20"
ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, slots=True)
class Network:
    auto: bool  #: it has a subnetwork of its own name in every region


@dataclass(frozen=True, slots=True)
class Subnetwork:
    private_google_access: bool  #: hosts without an external address reach Google's APIs
    nat: bool | NotSeen  #: ... and everything else


@dataclass(frozen=True, slots=True)
class Rule:
    """One firewall rule of the network, for what comes in."""

    name: str
    allows: bool  #: if not, it denies
    ports: tuple[tuple[int, int], ...]  #: of TCP, both ends included
    sources: tuple[str, ...]
    priority: int  #: the smallest counts
    tags: tuple[str, ...] = ()  #: for hosts with one of these alone; empty: for every host
    accounts: tuple[str, ...] = ()  #: for hosts of these accounts alone


def check_network(context: Context, seen: Network | NotSeen | None) -> Finding:
    """None: there is none."""
    name = "network"
    called = network_name(context)
    if isinstance(seen, NotSeen):
        return unknown(name, seen)
    if seen is None:
        cure = f"gcloud compute networks create {called} --project {context.project}"
        return fail(name, f"there is no network {called}", cure)
    return ok(name, called)


def network_name(context: Context) -> str:
    """What the Cloud TPU API takes when nothing is said: the project's `default`."""
    return context.network or "default"


def check_way_out(context: Context, region: str, seen: Subnetwork | NotSeen | None) -> Finding:
    """That hosts in this region have a subnetwork, and reach Cloud Storage from it. None: there is none."""
    name = f"way out {region}"
    if isinstance(seen, NotSeen):
        return unknown(name, seen)
    called = context.subnetwork or network_name(context)
    of = f"{last_part(called)} --region={region} --project {context.project}"
    if seen is None:
        cure = (
            f"gcloud compute networks subnets create {of} --network={last_part(network_name(context))} "
            "--range=10.77.0.0/20 --enable-private-ip-google-access"
        )
        return fail(name, f"there is no subnetwork {called} in {region}", cure)
    if context.with_external_ips:
        return ok(name, "by an external address for each host")
    if not seen.private_google_access:
        what = "hosts without an external address do not reach Cloud Storage from this subnetwork"
        cure = f"gcloud compute networks subnets update {of} --enable-private-ip-google-access"
        return fail(name, what, cure)
    if isinstance(seen.nat, NotSeen):
        return unknown(name, seen.nat)
    if not seen.nat:
        what = "hosts reach Google alone: nothing can be installed from elsewhere, as Cloud NAT is missing"
        of = f"--region={region} --project {context.project}"
        cure = (
            f"gcloud compute routers create tpujob --network={last_part(network_name(context))} {of} && "
            f"gcloud compute routers nats create tpujob --router=tpujob {of} "
            "--auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges"
        )
        return warn(name, what, cure)
    return ok(name, "Private Google Access and Cloud NAT")


def check_ssh(context: Context, rules: Sequence[Rule] | NotSeen) -> Finding:
    """That the firewall lets the backend in, the way the context has chosen."""
    name = "SSH"
    network = last_part(network_name(context))
    if context.ssh == "internal":
        what = (
            f"hosts are reached inside {network} only, so the backend must run on a machine there"
        )
        return warn(name, what, "set `ssh: iap` in the context to reach them from anywhere")
    if context.ssh == "external" and not context.with_external_ips:
        what = "hosts are to be reached at external addresses, and get none"
        return fail(name, what, "set `ssh: iap` in the context, or `external_ips: true`")
    if isinstance(rules, NotSeen):
        return unknown(name, rules)
    wanted = IAP_RANGE if context.ssh == "iap" else ""
    applying, others = opening(rules, context, wanted)
    create = (
        f"gcloud compute firewall-rules create tpujob-ssh --network={network} --allow=tcp:{SSH_PORT} "
        f"--source-ranges={wanted or 'YOUR_ADDRESS/32'} --project {context.project}"
    )
    if applying:
        wide = "" if wanted or ANYWHERE not in applying[0].sources else ", from everywhere"
        return ok(name, f"{context.ssh}: rule {applying[0].name} lets it in{wide}")
    if others:
        first = others[0]
        what = f"rule {first.name} lets it in only to hosts with {listed(first.tags or first.accounts)}"
        return fail(name, what, f"put one in `tags` of the context, or {create}")
    what = f"no firewall rule of {network} lets TCP {SSH_PORT} in from {wanted or 'anywhere'}"
    return fail(name, what, create)


def opening(rules: Sequence[Rule], context: Context, source: str) -> tuple[list[Rule], list[Rule]]:
    """The rules that let SSH in from all of `source` (empty: from anywhere at all): those that apply to our hosts, and
    those that apply to others alone. One that is denied at a smaller or equal priority number is not among them."""
    allowing = [rule for rule in rules if rule.allows and _covers(rule, source)]
    denying = [rule for rule in rules if not rule.allows and _applies(rule, context)]
    open_ = [
        rule
        for rule in sorted(allowing, key=lambda rule: rule.priority)
        if not any(
            deny.priority <= rule.priority and _has_port(deny) and _shuts(deny, rule, source)
            for deny in denying
        )
    ]
    return (
        [rule for rule in open_ if _applies(rule, context)],
        [rule for rule in open_ if not _applies(rule, context)],
    )


def _applies(rule: Rule, context: Context) -> bool:
    if not rule.tags and not rule.accounts:
        return True
    return bool({*rule.tags} & {*context.tags}) or context.service_account in rule.accounts


def _covers(rule: Rule, source: str) -> bool:
    if source:
        return _has_port(rule) and any(_within(source, one) for one in rule.sources)
    return _has_port(rule) and any(map(_outside, rule.sources))


def _outside(source: str) -> bool:
    """Whether addresses of the internet are in it, other than those of the tunnels."""
    try:
        return not ipaddress.ip_network(source).is_private and not _within(source, IAP_RANGE)
    except ValueError:
        return False


def _has_port(rule: Rule) -> bool:
    return any(low <= SSH_PORT <= high for low, high in rule.ports)


def _shuts(deny: Rule, rule: Rule, source: str) -> bool:
    """Whether it takes away everything for which the rule is wanted."""
    return all(
        any(_within(one, d) for d in deny.sources) for one in ([source] if source else rule.sources)
    )


def _within(inner: str, outer: str) -> bool:
    try:
        inside, around = ipaddress.ip_network(inner), ipaddress.ip_network(outer)
    except ValueError:
        return False
    if isinstance(inside, ipaddress.IPv4Network) and isinstance(around, ipaddress.IPv4Network):
        return inside.subnet_of(around)
    if isinstance(inside, ipaddress.IPv6Network) and isinstance(around, ipaddress.IPv6Network):
        return inside.subnet_of(around)
    return False


def last_part(name: str) -> str:
    """What a resource is called, without where it lies."""
    return name.rpartition("/")[2]
