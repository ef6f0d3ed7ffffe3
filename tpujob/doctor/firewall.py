"""What the firewall rules of a network let in. Which ports are needed, and the cures, are in `network.py`.

Firewall policies of a folder or organisation are not looked at: they can close what a rule opens.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpujob.config.context import Context

#: where the tunnels of Identity-Aware Proxy come from (Google's page "Using IAP for TCP forwarding")
IAP_RANGE = "35.235.240.0/20"
ANYWHERE = "0.0.0.0/0"
#: a source for `opening`: somewhere in the internet
OUTSIDE = ""


@dataclass(frozen=True, slots=True)
class Rule:
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
    rules: Sequence[Rule], context: Context, source: str, port: int
) -> tuple[list[Rule], list[Rule]]:
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


def closing(rules: Sequence[Rule], context: Context, port: int) -> list[Rule]:
    """The rules that deny TCP to that port of our hosts to anybody."""
    return [r for r in rules if not r.allows and _applies(r, context) and _has_port(r, port)]


def _applies(rule: Rule, context: Context) -> bool:
    if not rule.tags and not rule.accounts:
        return True
    return bool({*rule.tags} & {*context.tags}) or context.service_account in rule.accounts


def _covers(rule: Rule, context: Context, source: str, port: int) -> bool:
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
        return not ipaddress.ip_network(source).is_private and not within(source, IAP_RANGE)
    except ValueError:
        return False


def _has_port(rule: Rule, port: int) -> bool:
    return any(low <= port <= high for low, high in rule.ports)


def _shuts(deny: Rule, rule: Rule, source: str) -> bool:
    """Whether it takes away everything for which the rule is wanted."""
    wanted = [source] if source else rule.sources
    return all(any(within(one, d) for d in deny.sources) for one in wanted)


def within(inner: str, outer: str) -> bool:
    """Whether every address of the one range is in the other. False for what is no range."""
    try:
        inside, around = ipaddress.ip_network(inner), ipaddress.ip_network(outer)
    except ValueError:
        return False
    if isinstance(inside, ipaddress.IPv4Network) and isinstance(around, ipaddress.IPv4Network):
        return inside.subnet_of(around)
    if isinstance(inside, ipaddress.IPv6Network) and isinstance(around, ipaddress.IPv6Network):
        return inside.subnet_of(around)
    return False
