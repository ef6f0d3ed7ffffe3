"""How hosts are reached and what they reach: network, subnetwork, firewall, and the way out without an address. What a
firewall lets in is worked out in `firewall.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, NotSeen, fail, listed, ok, unknown, warn
from tpujob.domain.host.plan import COORDINATOR_PORT, MEETING_PORT, MEGASCALE_PORT, PREFLIGHT_PORT
from tpujob.domain.text import many

if TYPE_CHECKING:
    from tpujob.config.context import Context


SSH_PORT = 22
#: on which the hosts of a slice find each other; what they send then takes ports that libtpu and JAX choose
MEETING_PORTS = (MEGASCALE_PORT, COORDINATOR_PORT, PREFLIGHT_PORT, MEETING_PORT)


@dataclass(frozen=True, slots=True)
class Network:
    auto: bool  #: it has a subnetwork of its own name in every region


@dataclass(frozen=True, slots=True)
class Subnetwork:
    range: str  #: of its hosts' addresses
    private_google_access: bool  #: hosts without an external address reach Google's APIs
    nat: bool | NotSeen  #: ... and everything else


def check_network(context: Context, seen: Network | None) -> Finding:
    """Check the network; None: it does not exist."""
    called = network_name(context)
    if seen is None:
        cure = f"gcloud compute networks create {called} --project {context.project}"
        return fail(f"there is no network {called}", cure)
    return ok(called)


def network_name(context: Context) -> str:
    """Return the context's network; without one, `default`, as the Cloud TPU API does."""
    return context.network or "default"


def check_way_out(context: Context, region: str, seen: Subnetwork | None) -> Finding:
    """Check that hosts in this region have a subnetwork, and reach Cloud Storage from it; None: it does not exist."""
    called = context.subnetwork or network_name(context)
    of = f"{last_part(called)} --region={region} --project {context.project}"
    if seen is None:
        cure = (
            f"gcloud compute networks subnets create {of} --network={last_part(network_name(context))} "
            "--range=10.77.0.0/20 --enable-private-ip-google-access"
        )
        return fail(f"there is no subnetwork {called} in {region}", cure)
    if context.with_external_ips:
        return ok("by an external address for each host")
    if not seen.private_google_access:
        what = "hosts without an external address do not reach Cloud Storage from this subnetwork"
        cure = f"gcloud compute networks subnets update {of} --enable-private-ip-google-access"
        return fail(what, cure)
    if isinstance(seen.nat, NotSeen):
        return unknown(seen.nat)
    if not seen.nat:
        what = "hosts reach only Google: nothing can be installed from elsewhere, as Cloud NAT is missing"
        of = f"--region={region} --project {context.project}"
        cure = (
            f"gcloud compute routers create tpujob --network={last_part(network_name(context))} {of} && "
            f"gcloud compute routers nats create tpujob --router=tpujob {of} "
            "--auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges"
        )
        return warn(what, cure)
    return ok("Private Google Access and Cloud NAT")


def check_ssh(context: Context, rules: Sequence[FirewallRule] | NotSeen) -> Finding:
    """Check that the firewall allows SSH from the backend, by the way that the context sets."""
    network = last_part(network_name(context))
    if context.ssh == "internal":
        what = (
            f"hosts are reached inside {network} only, so the backend must run on a machine there"
        )
        return warn(what, "set `ssh: iap` in the context to reach them from anywhere")
    if context.ssh == "external" and not context.with_external_ips:
        what = "`ssh: external` needs external addresses, and hosts get none"
        return fail(what, "set `ssh: iap` in the context, or `external_ips: true`")
    if isinstance(rules, NotSeen):
        return unknown(rules)
    wanted = IAP_RANGE if context.ssh == "iap" else OUTSIDE
    applying, others = opening(rules, context, wanted, SSH_PORT)
    create = (
        f"gcloud compute firewall-rules create tpujob-ssh --network={network} --allow=tcp:{SSH_PORT} "
        f"--source-ranges={wanted or 'YOUR_ADDRESS/32'} --project {context.project}"
    )
    if applying and "ssh" not in context.model_fields_set:
        what = "the context does not set `ssh`, so hosts are reached at external addresses, with port 22 open"
        return warn(what, "write `ssh: iap` or `ssh: internal` into it; `ssh: external` keeps it")
    if applying:
        wide = "" if wanted or ANYWHERE not in applying[0].sources else ", from everywhere"
        return ok(f"{context.ssh}: allowed by rule {applying[0].name}{wide}")
    if others:
        first = others[0]
        what = (
            f"rule {first.name} allows it only to hosts with {listed(first.tags or first.accounts)}"
        )
        return fail(what, f"add one to `tags` of the context, or {create}")
    what = f"no firewall rule of {network} allows TCP {SSH_PORT} from {wanted or 'anywhere'}"
    return fail(what, create)


def check_host_keys(trust: Mapping[str, str]) -> Finding:
    """Check the host keys. `trust`: by slice, why the keys of its hosts are trusted, as `tpujob show` says it."""
    first = [slice for slice, why in trust.items() if why == "first-contact"]
    if not first:
        return ok(f"published by the hosts of {many(len(trust), 'slice')}")
    what = f"trusted at the first contact, as their hosts published none: {listed(first)}"
    cure = "let the backend read guest attributes (roles/tpu.viewer), or take an image whose hosts publish theirs"
    return warn(what, cure)


def check_between_hosts(
    context: Context, seen: Subnetwork, rules: Sequence[FirewallRule]
) -> Finding:
    """Check that the firewall lets the hosts of a slice, which share a subnetwork, reach each other."""
    network = last_part(network_name(context))
    closed = [p for p in MEETING_PORTS if not opening(rules, context, seen.range, p)[0]]
    if not closed:
        return ok(f"in {seen.range} reach each other")
    denied = [r.priority for port in closed for r in closing(rules, context, port)]
    first = f" --priority={max(0, min(denied) - 1)}" if denied else ""
    what = (
        f"the firewall of {network} keeps hosts of {seen.range} from each other on TCP {listed(map(str, closed))}: "
        "slices of more than one host fail"
    )
    cure = (
        f"gcloud compute firewall-rules create tpujob-hosts --network={network} --allow=tcp "
        f"--source-ranges={seen.range}{first} --project {context.project}"
    )
    return fail(what, cure)


def last_part(name: str) -> str:
    """Return a resource's name without its location."""
    return name.rpartition("/")[2]


# Firewall rules ------------------------------------------------------------------------------------------------------


#: where the tunnels of Identity-Aware Proxy come from (Google's page "Using IAP for TCP forwarding")
IAP_RANGE = "35.235.240.0/20"
ANYWHERE = "0.0.0.0/0"
#: a source for `opening`: somewhere in the internet
OUTSIDE = ""


@dataclass(frozen=True, slots=True)
class FirewallRule:
    """One firewall rule of the network, for what comes in."""

    name: str
    allows: bool  #: if not, it denies
    ports: tuple[tuple[int, int], ...]  #: of TCP, both ends included
    sources: tuple[str, ...]  #: ranges of addresses
    priority: int  #: the smallest counts
    tags: tuple[str, ...] = ()  #: for hosts with one of these alone; empty: for every host
    accounts: tuple[str, ...] = ()  #: for hosts of these accounts alone
    source_tags: tuple[str, ...] = ()  #: also from hosts with one of these
    source_accounts: tuple[str, ...] = ()  #: also from hosts of these accounts


def opening(
    rules: Sequence[FirewallRule], context: Context, source: str, port: int
) -> tuple[list[FirewallRule], list[FirewallRule]]:
    """The rules that let TCP to that port in from all of `source` (OUTSIDE: from anywhere at all): those that apply to
    our hosts, and those that apply to others alone. One that is denied at a smaller or equal priority number is not
    among them."""
    allowing = [rule for rule in rules if rule.allows and _covers(rule, context, source, port)]
    denying = closing(rules, context, port)
    open_ = [
        rule
        for rule in sorted(allowing, key=lambda rule: rule.priority)
        if not any(d.priority <= rule.priority and _shuts(d, rule, source) for d in denying)
    ]
    return (
        [rule for rule in open_ if _applies(rule, context)],
        [rule for rule in open_ if not _applies(rule, context)],
    )


def closing(rules: Sequence[FirewallRule], context: Context, port: int) -> list[FirewallRule]:
    """Return the rules that deny TCP to that port of our hosts to any source."""
    return [r for r in rules if not r.allows and _applies(r, context) and _has_port(r, port)]


def _applies(rule: FirewallRule, context: Context) -> bool:
    if not rule.tags and not rule.accounts:
        return True
    return bool({*rule.tags} & {*context.tags}) or context.service_account in rule.accounts


def _covers(rule: FirewallRule, context: Context, source: str, port: int) -> bool:
    if not _has_port(rule, port):
        return False
    if source == OUTSIDE:
        return any(map(_outside, rule.sources))
    if any(within(source, one) for one in rule.sources):
        return True
    # of what comes from our own hosts, whatever their addresses
    from_ours = bool({*rule.source_tags} & {*context.tags})
    return source != IAP_RANGE and (from_ours or context.service_account in rule.source_accounts)


def _outside(source: str) -> bool:
    """Whether addresses of the internet are in it, other than those of the tunnels."""
    try:
        return not IPv4Network(source).is_private and not within(source, IAP_RANGE)
    except ValueError:
        return False


def _has_port(rule: FirewallRule, port: int) -> bool:
    return any(low <= port <= high for low, high in rule.ports)


def _shuts(deny: FirewallRule, rule: FirewallRule, source: str) -> bool:
    """Whether it takes away everything for which the rule is wanted."""
    wanted = [source] if source else rule.sources
    return all(any(within(one, d) for d in deny.sources) for one in wanted)


def within(inner: str, outer: str) -> bool:
    """Whether every address of the one range is in the other. False for what is no range of IPv4, which hosts have."""
    try:
        return IPv4Network(inner).subnet_of(IPv4Network(outer))
    except ValueError:
        return False
