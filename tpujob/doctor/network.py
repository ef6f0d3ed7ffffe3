"""How hosts are reached and what they reach: network, subnetwork, firewall, and the way out without an address.

Firewall policies of a folder or organisation are not looked at: they can close what a rule opens.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from tpujob.doctor.findings import Finding, NotSeen, Wants, fail, listed, ok, unknown, warn

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


def check_network(wants: Wants, seen: Network | NotSeen | None) -> Finding:
    """None: there is none."""
    name = "network"
    called = network_name(wants)
    if isinstance(seen, NotSeen):
        return unknown(name, seen)
    if seen is None:
        cure = f"gcloud compute networks create {called} --project {wants.project}"
        return fail(name, f"there is no network {called}", cure)
    return ok(name, called)


def network_name(wants: Wants) -> str:
    """What the Cloud TPU API takes when nothing is said: the project's `default`."""
    return wants.network or "default"


def check_way_out(wants: Wants, region: str, seen: Subnetwork | NotSeen | None) -> Finding:
    """That hosts in this region have a subnetwork, and reach Cloud Storage from it. None: there is none."""
    name = f"way out {region}"
    if isinstance(seen, NotSeen):
        return unknown(name, seen)
    called = wants.subnetwork or network_name(wants)
    of = f"{last_part(called)} --region={region} --project {wants.project}"
    if seen is None:
        cure = (
            f"gcloud compute networks subnets create {of} --network={last_part(network_name(wants))} "
            "--range=10.77.0.0/20 --enable-private-ip-google-access"
        )
        return fail(name, f"there is no subnetwork {called} in {region}", cure)
    if wants.external_ips:
        return ok(name, "by an external address for each host")
    if not seen.private_google_access:
        what = "hosts without an external address do not reach Cloud Storage from this subnetwork"
        cure = f"gcloud compute networks subnets update {of} --enable-private-ip-google-access"
        return fail(name, what, cure)
    if isinstance(seen.nat, NotSeen):
        return unknown(name, seen.nat)
    if not seen.nat:
        what = "hosts reach Google alone: nothing can be installed from elsewhere, as Cloud NAT is missing"
        of = f"--region={region} --project {wants.project}"
        cure = (
            f"gcloud compute routers create tpujob --network={last_part(network_name(wants))} {of} && "
            f"gcloud compute routers nats create tpujob --router=tpujob {of} "
            "--auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges"
        )
        return warn(name, what, cure)
    return ok(name, "Private Google Access and Cloud NAT")


def check_ssh(wants: Wants, rules: Sequence[Rule] | NotSeen) -> Finding:
    """That the firewall lets the backend in, the way the context has chosen."""
    name = "SSH"
    network = last_part(network_name(wants))
    if wants.ssh == "internal":
        what = (
            f"hosts are reached inside {network} only, so the backend must run on a machine there"
        )
        return warn(name, what, "set `ssh: iap` in the context to reach them from anywhere")
    if wants.ssh == "external" and not wants.external_ips:
        what = "hosts are to be reached at external addresses, and get none"
        return fail(name, what, "set `ssh: iap` in the context, or `external_ips: true`")
    if isinstance(rules, NotSeen):
        return unknown(name, rules)
    wanted = IAP_RANGE if wants.ssh == "iap" else ""
    applying, others = opening(rules, wants, wanted)
    create = (
        f"gcloud compute firewall-rules create tpujob-ssh --network={network} --allow=tcp:{SSH_PORT} "
        f"--source-ranges={wanted or 'YOUR_ADDRESS/32'} --project {wants.project}"
    )
    if applying:
        wide = "" if wanted or ANYWHERE not in applying[0].sources else ", from everywhere"
        return ok(name, f"{wants.ssh}: rule {applying[0].name} lets it in{wide}")
    if others:
        first = others[0]
        what = f"rule {first.name} lets it in only to hosts with {listed(first.tags or first.accounts)}"
        return fail(name, what, f"put one in `tags` of the context, or {create}")
    what = f"no firewall rule of {network} lets TCP {SSH_PORT} in from {wanted or 'anywhere'}"
    return fail(name, what, create)


def opening(rules: Sequence[Rule], wants: Wants, source: str) -> tuple[list[Rule], list[Rule]]:
    """The rules that let SSH in from all of `source` (empty: from anywhere at all): those that apply to our hosts, and
    those that apply to others alone. One that is denied at a smaller or equal priority number is not among them."""
    allowing = [rule for rule in rules if rule.allows and _covers(rule, source)]
    denying = [rule for rule in rules if not rule.allows and _applies(rule, wants)]
    open_ = [
        rule
        for rule in sorted(allowing, key=lambda rule: rule.priority)
        if not any(
            deny.priority <= rule.priority and _has_port(deny) and _shuts(deny, rule, source)
            for deny in denying
        )
    ]
    return (
        [rule for rule in open_ if _applies(rule, wants)],
        [rule for rule in open_ if not _applies(rule, wants)],
    )


def _applies(rule: Rule, wants: Wants) -> bool:
    if not rule.tags and not rule.accounts:
        return True
    return bool({*rule.tags} & {*wants.tags}) or wants.service_account in rule.accounts


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
