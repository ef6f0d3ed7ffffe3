"""The network of hosts: network, subnetwork, access to the internet without an address, SSH, and firewall rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, NotSeen, fail, listed, ok, unknown, warn
from tpujob.domain.host.plan import MEETING_PORT, MEGASCALE_PORT, PREFLIGHT_PORT
from tpujob.domain.text import many
from tpujob.protocol import COORDINATOR_PORT

if TYPE_CHECKING:
    from tpujob.config.context import Context


SSH_PORT = 22
#: ports on which the hosts of a slice find each other; their traffic then takes ports that libtpu and JAX choose
MEETING_PORTS = (MEGASCALE_PORT, COORDINATOR_PORT, PREFLIGHT_PORT, MEETING_PORT)


@dataclass(frozen=True, slots=True)
class Network:
    auto: bool  #: whether a subnetwork with the network's name exists in every region


@dataclass(frozen=True, slots=True)
class Subnetwork:
    range: str  #: addresses of its hosts
    private_google_access: bool  #: whether hosts without an external address reach Google's APIs
    nat: bool | NotSeen  #: whether such hosts reach the rest of the internet


def check_network(context: Context, network: Network | None) -> Finding:
    """Check the network; None: it does not exist."""
    name = network_name(context)
    if network is None:
        cure = f"gcloud compute networks create {name} --project {context.project}"
        return fail(f"there is no network {name}", cure)
    return ok(name)


def network_name(context: Context) -> str:
    """Return the context's network; without one, `default`, as the Cloud TPU API does."""
    return context.network or "default"


def check_way_out(context: Context, region: str, subnetwork: Subnetwork | None) -> Finding:
    """Check that hosts of the region have a subnetwork, and reach Cloud Storage from it; None: there is none."""
    name = context.subnetwork or network_name(context)
    options = f"{last_part(name)} --region={region} --project {context.project}"
    if subnetwork is None:
        cure = (
            f"gcloud compute networks subnets create {options} --network={last_part(network_name(context))} "
            "--range=10.77.0.0/20 --enable-private-ip-google-access"
        )
        return fail(f"there is no subnetwork {name} in {region}", cure)
    if context.with_external_ips:
        return ok("by an external address for each host")
    if not subnetwork.private_google_access:
        text = "hosts without an external address do not reach Cloud Storage from this subnetwork"
        cure = f"gcloud compute networks subnets update {options} --enable-private-ip-google-access"
        return fail(text, cure)
    if isinstance(subnetwork.nat, NotSeen):
        return unknown(subnetwork.nat)
    if not subnetwork.nat:
        text = "hosts reach only Google: nothing can be installed from elsewhere, as Cloud NAT is missing"
        options = f"--region={region} --project {context.project}"
        cure = (
            f"gcloud compute routers create tpujob --network={last_part(network_name(context))} {options} && "
            f"gcloud compute routers nats create tpujob --router=tpujob {options} "
            "--auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges"
        )
        return warn(text, cure)
    return ok("Private Google Access and Cloud NAT")


def check_ssh(context: Context, rules: Sequence[FirewallRule] | NotSeen) -> Finding:
    """Check that the firewall allows SSH from the backend, in the way that the context sets."""
    network = last_part(network_name(context))
    if context.ssh == "internal":
        text = (
            f"hosts are reached inside {network} only, so the backend must run on a machine there"
        )
        if context.store == "firestore" or context.backend:
            return ok(f"internal: for a backend inside {network}, such as that of deploy/README.md")
        return warn(text, "set `ssh: iap` in the context to reach them from anywhere")
    if context.ssh == "external" and not context.with_external_ips:
        text = "`ssh: external` needs external addresses, and hosts get none"
        return fail(text, "set `ssh: iap` in the context, or `external_ips: true`")
    if isinstance(rules, NotSeen):
        return unknown(rules)
    source = IAP_RANGE if context.ssh == "iap" else OUTSIDE
    open_rules, other_rules = find_allowing_rules(rules, context, source, SSH_PORT)
    create = (
        f"gcloud compute firewall-rules create tpujob-ssh --network={network} --allow=tcp:{SSH_PORT} "
        f"--source-ranges={source or 'YOUR_ADDRESS/32'} --project {context.project}"
    )
    if open_rules and "ssh" not in context.model_fields_set:
        text = "the context does not set `ssh`, so hosts are reached at external addresses, with port 22 open"
        return warn(text, "write `ssh: iap` or `ssh: internal` into it; `ssh: external` keeps it")
    if open_rules:
        warning = "" if source or ANYWHERE not in open_rules[0].sources else ", from everywhere"
        return ok(f"{context.ssh}: allowed by rule {open_rules[0].name}{warning}")
    if other_rules:
        first = other_rules[0]
        text = (
            f"rule {first.name} allows it only to hosts with {listed(first.tags or first.accounts)}"
        )
        return fail(text, f"add one to `tags` of the context, or {create}")
    text = f"no firewall rule of {network} allows TCP {SSH_PORT} from {source or 'anywhere'}"
    return fail(text, create)


def check_host_keys(trust: Mapping[str, str]) -> Finding:
    """Check the host keys. `trust`: slice -> why the keys of its hosts are trusted, as in `tpujob show`."""
    slices = [slice for slice, why in trust.items() if why == "first-contact"]
    if not slices:
        return ok(f"published by the hosts of {many(len(trust), 'slice')}")
    text = f"trusted at the first contact, as their hosts published none: {listed(slices)}"
    cure = "let the backend read guest attributes (roles/tpu.viewer), or take an image whose hosts publish theirs"
    return warn(text, cure)


def check_between_hosts(
    context: Context, subnetwork: Subnetwork, rules: Sequence[FirewallRule]
) -> Finding:
    """Check that the firewall lets the hosts of a slice, which share a subnetwork, reach each other."""
    network = last_part(network_name(context))
    closed = [
        port
        for port in MEETING_PORTS
        if not find_allowing_rules(rules, context, subnetwork.range, port)[0]
    ]
    if not closed:
        return ok(f"in {subnetwork.range} reach each other")
    denied = [rule.priority for port in closed for rule in find_denying_rules(rules, context, port)]
    priority = f" --priority={max(0, min(denied) - 1)}" if denied else ""
    ports = listed(map(str, closed))
    text = (
        f"the firewall of {network} keeps hosts of {subnetwork.range} from each other on TCP {ports}: "
        "slices of more than one host fail"
    )
    cure = (
        f"gcloud compute firewall-rules create tpujob-hosts --network={network} --allow=tcp "
        f"--source-ranges={subnetwork.range}{priority} --project {context.project}"
    )
    return fail(text, cure)


def last_part(name: str) -> str:
    """Return a resource's name without its location."""
    return name.rpartition("/")[2]


# Firewall rules ------------------------------------------------------------------------------------------------------


#: addresses of the tunnels of Identity-Aware Proxy (Google's page "Using IAP for TCP forwarding")
IAP_RANGE = "35.235.240.0/20"
ANYWHERE = "0.0.0.0/0"
#: the source of `find_allowing_rules` that stands for any address of the internet
OUTSIDE = ""


@dataclass(frozen=True, slots=True)
class FirewallRule:
    """A firewall rule of the network for incoming traffic."""

    name: str
    allows: bool  #: False: the rule denies
    ports: tuple[tuple[int, int], ...]  #: ranges of TCP ports, both ends included
    sources: tuple[str, ...]  #: ranges of addresses
    priority: int  #: the rule with the smallest number counts
    tags: tuple[str, ...] = ()  #: only for hosts with one of these tags; empty: for every host
    accounts: tuple[str, ...] = ()  #: only for hosts of these accounts; empty: for every host
    source_tags: tuple[str, ...] = ()  #: also from hosts with one of these tags
    source_accounts: tuple[str, ...] = ()  #: also from hosts of these accounts


def find_allowing_rules(
    rules: Sequence[FirewallRule], context: Context, source: str, port: int
) -> tuple[list[FirewallRule], list[FirewallRule]]:
    """Return the rules that allow TCP to the port from all of `source` (OUTSIDE: from any address): first those for the
    context's hosts, then those for other hosts only. Rules that a denial with a smaller or equal priority number
    overrides are left out."""
    candidates = [rule for rule in rules if rule.allows and _covers(rule, context, source, port)]
    denials = find_denying_rules(rules, context, port)
    effective = [
        rule
        for rule in sorted(candidates, key=lambda rule: rule.priority)
        if not any(d.priority <= rule.priority and _overrides(d, rule, source) for d in denials)
    ]
    return (
        [rule for rule in effective if _applies(rule, context)],
        [rule for rule in effective if not _applies(rule, context)],
    )


def find_denying_rules(
    rules: Sequence[FirewallRule], context: Context, port: int
) -> list[FirewallRule]:
    """Return the rules that deny TCP to the port of the context's hosts to any source."""
    return [r for r in rules if not r.allows and _applies(r, context) and _has_port(r, port)]


def _applies(rule: FirewallRule, context: Context) -> bool:
    if not rule.tags and not rule.accounts:
        return True
    return bool({*rule.tags} & {*context.tags}) or context.service_account in rule.accounts


def _covers(rule: FirewallRule, context: Context, source: str, port: int) -> bool:
    if not _has_port(rule, port):
        return False
    if source == OUTSIDE:
        return any(map(_is_internet, rule.sources))
    if any(within(source, range) for range in rule.sources):
        return True
    # the rule may name the context's hosts instead of their addresses
    has_tag = bool({*rule.source_tags} & {*context.tags})
    return source != IAP_RANGE and (has_tag or context.service_account in rule.source_accounts)


def _is_internet(source: str) -> bool:
    """Return whether the range has addresses of the internet other than those of the tunnels."""
    try:
        return not IPv4Network(source).is_private and not within(source, IAP_RANGE)
    except ValueError:
        return False


def _has_port(rule: FirewallRule, port: int) -> bool:
    return any(low <= port <= high for low, high in rule.ports)


def _overrides(denial: FirewallRule, rule: FirewallRule, source: str) -> bool:
    """Return whether `denial` denies everything that the rule allows from the source."""
    allowed = [source] if source else rule.sources
    return all(any(within(inner, outer) for outer in denial.sources) for inner in allowed)


def within(inner: str, outer: str) -> bool:
    """Return whether every address of `inner` is in `outer`; False if one is no range of IPv4, which hosts have."""
    try:
        return IPv4Network(inner).subnet_of(IPv4Network(outer))
    except ValueError:
        return False
