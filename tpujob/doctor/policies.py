"""Policies of the organization that stand in the way of slices, and the setting that complies with each.

The names are from Google's list of constraints ("Organization policy constraints"). Some have a newer form beside the
older one, such as `compute.managed.vmExternalIpAccess`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, NotSeen, fail, listed, ok, unknown, warn
from tpujob.domain.hardware.accelerators import region_of

if TYPE_CHECKING:
    from tpujob.config.context import Context

#: what complies with each policy that may refuse a slice, or who can help
CURES: Mapping[str, str] = MappingProxyType(
    {
        "compute.vmExternalIpAccess": "set `ssh: internal` or `ssh: iap` in the context, without `external_ips`",
        "compute.requireOsLogin": "ask for an exception for this project: OS Login ignores the keys of slices",
        "compute.requireShieldedVm": "set `secure_boot: true` in the context",
        "compute.disableGuestAttributesAccess": (
            "ask for an exception for this project: hosts publish their SSH host keys as guest attributes"
        ),
        "gcp.resourceLocations": (
            "name zones and buckets that the policy allows, and `secret_region` in the context"
        ),
        "iam.allowedPolicyMemberDomains": (
            "members from outside the organization need `door: public` in the context"
        ),
        "compute.restrictSharedVpcSubnetworks": "name a `subnetwork` that the policy allows in the context",
        "compute.restrictVpcPeering": "name a `network` that needs no peering in the context",
        "iam.disableCrossProjectServiceAccountUsage": (
            "name a `service_account` of this project in the context"
        ),
    }
)

#: those that `tpujob doctor` reads; newer forms, with `managed` in their names, are policies of their own
CHECKED = (
    "compute.vmExternalIpAccess",
    "compute.requireOsLogin",
    "compute.requireShieldedVm",
    "compute.disableGuestAttributesAccess",
    "gcp.resourceLocations",
    "iam.allowedPolicyMemberDomains",
)

ASK = "ask who manages the policies of the organization"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as it is in force for the project, with what it inherits."""

    enforced: bool = False  #: of a policy that is on or off
    allowed: tuple[str, ...] | None = None  #: of a policy with a list; None: everything
    denied: tuple[str, ...] = ()
    conditional: bool = False  #: some rules hold for resources with certain tags only


def check_policies(context: Context, policies: Mapping[str, Policy | NotSeen]) -> list[Finding]:
    """Check the policies that were read: a finding for each that stands in the way, one for all that are unknown, and
    one if nothing was found."""
    findings: list[Finding] = []
    unseen: list[tuple[str, NotSeen]] = []
    for name, policy in policies.items():
        if isinstance(policy, NotSeen):
            unseen.append((name, policy))
        elif policy.conditional:
            unseen.append((name, NotSeen("some of its rules depend on tags", ASK)))
        elif found := _check(context, name, policy):
            findings.append(found)
    if unseen:
        fact = unseen[0][1]
        names = listed((name for name, _ in unseen), 9)
        every = len(unseen) == len(policies)
        findings.append(unknown(fact if every else replace(fact, why=f"{names}: {fact.why}")))
    return findings or [ok(f"none of {len(policies)} stands in the way")]


def _check(context: Context, name: str, policy: Policy) -> Finding | None:
    """Return the finding of a policy that stands in the way of this context; None: it does not."""
    match name:
        case "compute.vmExternalIpAccess":
            hinders = context.with_external_ips and policy.allowed is not None
        case "compute.requireOsLogin":
            hinders = policy.enforced
        case "compute.requireShieldedVm":
            hinders = policy.enforced and not context.secure_boot
        case "compute.disableGuestAttributesAccess":
            text = f"{name} is enforced: host keys are trusted at the first contact"
            return warn(text, CURES[name]) if policy.enforced else None
        case "gcp.resourceLocations":
            return _check_locations(context, policy)
        case _:
            closed = policy.allowed is not None and context.store == "firestore"
            return ok(f"{name}: {CURES[name]}") if closed and context.door != "public" else None
    return fail(f"{name} prevents slices of this context", CURES[name]) if hinders else None


def _check_locations(context: Context, policy: Policy) -> Finding | None:
    name = "gcp.resourceLocations"
    answers = {zone: _allows(policy, zone) for zone in context.every_zone}
    if closed := [zone for zone, allowed in answers.items() if allowed is False]:
        return fail(f"{name} forbids {listed(closed)}", CURES[name])
    if unclear := [zone for zone, allowed in answers.items() if allowed is None]:
        values = listed((*(policy.allowed or ()), *policy.denied))
        return unknown(NotSeen(f"whether {values} of {name} has {listed(unclear)}", ASK))
    if policy.allowed is not None and context.store == "firestore" and not context.secret_region:
        text = f"{name} may forbid secrets that are kept in every region"
        return warn(text, f"set `secret_region: {context.every_region[0]}` in the context")
    return None


def _allows(policy: Policy, zone: str) -> bool | None:
    """Return whether the policy allows the zone; None: it has a group of places whose members are not known here."""
    denied = [_has(value, zone) for value in policy.denied]
    allowed = [True] if policy.allowed is None else [_has(value, zone) for value in policy.allowed]
    if True in denied:
        return False
    if True in allowed:
        return None if None in denied else True
    return None if None in allowed else False


def _has(value: str, zone: str) -> bool | None:
    """Return whether a value of a policy about places has the zone: `us-east5-a`, `is:us-east5-a`,
    `in:us-east5-locations`, `in:us-locations`. None: not known, as of `in:eu-locations`."""
    if group := re.fullmatch(r"in:([a-z0-9-]+)-locations", value):
        if re.fullmatch(r"[a-z]+-[a-z]+\d+", group[1]):
            return region_of(zone) == group[1]
        return True if zone.startswith(f"{group[1]}-") else None
    place = value.removeprefix("is:")
    return None if place == region_of(zone) else place == zone
