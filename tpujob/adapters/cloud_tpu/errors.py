"""The meaning of errors of the Cloud TPU API: by their text, else by their code. Tables and their look-up only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tpujob.doctor.policies import CURES
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Scope


@dataclass(frozen=True, slots=True)
class Meaning:
    cause: Cause | None  #: None: of a call, a retry may succeed; of a state, not known
    hint: str = ""  #: what a person can do
    scope: Scope = ""  #: where the error holds, `region` or `zone`; empty: the text does not say
    zone_closed: bool = False  #: the project may not use that zone at all
    rate: bool = False  #: too many requests in a short time; it passes by itself
    limit: int | None = (
        None  #: of the quota of TPUs that was exceeded, in its own unit; None: not in the text
    )


LOGIN_HINT = f"run `{LOGIN}`"


def _policy(name: str, cure: str) -> tuple[str, Meaning]:
    """Return the row of a policy of the organization; newer ones have `managed` in their names."""
    area, _, rule = name.partition(".")
    closed = name == "gcp.resourceLocations"
    hint = f"the organization's policy {name} forbids it: {cure}"
    pattern = rf"constraints/{area}\.(?:managed\.)?{rule}\b"
    return pattern, Meaning(Cause.PERMISSION, hint, zone_closed=closed)


#: Texts that decide the meaning of an error, whatever its code: regular expressions, searched in the message, in any
#: case. The first match counts. RESOURCE_EXHAUSTED alone may be capacity, quota or rate, so texts come before codes.
ERROR_TEXTS: Mapping[str, Meaning] = MappingProxyType(
    {
        # "Constraint constraints/compute.vmExternalIpAccess violated for project 42": Compute Engine's text, with HTTP
        # 412, so FAILED_PRECONDITION (gardener-extension-provider-gcp#415). Cloud TPU documents none of its own
        **dict(_policy(*row) for row in CURES.items()),
        r"constraints/|violates .{0,40}org(?:anization)? policy|denied by .{0,20}org(?:anization)? policy": Meaning(
            Cause.PERMISSION,
            "a policy of the organization forbids it: ask for an exception for this project",
        ),
        # Compute Engine's text, of a subnetwork
        r"IP_SPACE_EXHAUSTED|IP space of .{1,200} is exhausted": Meaning(
            Cause.QUOTA,
            "the subnetwork has no free addresses: `gcloud compute networks subnets expand-ip-range`, or name a "
            "larger one in `subnetwork` of the context",
        ),
        r"no more capacity|lack of capacity|insufficientCapacity": Meaning(Cause.STOCKOUT),
        # "The zone '...' does not have enough resources available to fulfill the request": Compute Engine's text
        r"does not have enough resources available": Meaning(Cause.STOCKOUT),
        r"ZONE_RESOURCE_POOL_EXHAUSTED|Requested resource is exhausted": Meaning(Cause.STOCKOUT),
        r"Insufficient reserved capacity": Meaning(
            Cause.STOCKOUT, "the reservation is full, or is not one for this type and zone"
        ),
        r"not supported while in state PREEMPTED": Meaning(Cause.PREEMPTED),
        # "Maximum number of CreateNode requests per minute" (marin#6198); the code is that of a quota
        r"requests?'? per |per minute|rate.?limit|too many requests|RESOURCE_OPERATION_RATE_EXCEEDED": Meaning(
            None, rate=True
        ),
        r"Limit:? 0(?:\.0+)?(?!\.?\d)": Meaning(
            Cause.QUOTA,
            "no access to this type here: the project's quota is 0; ask for some, or name another place",
        ),
        r"IN_USE_ADDRESSES": Meaning(Cause.QUOTA, "ask for external IP addresses, or use none"),
        r"Quota (?:limit )?'[^']*' (?:has been )?(?:exhausted|exceeded)": Meaning(Cause.QUOTA),
        r"QuotaFailure|QUOTA_EXCEEDED|quotaExceeded": Meaning(Cause.QUOTA),
        # of a queued resource, with code 3 (axlearn, `tpu.py`, which cites Google)
        r"reservation for request queue": Meaning(
            Cause.QUOTA, "the project has no quota for queued resources of this type and pricing"
        ),
        r"SUBNET_NOT_FOUND_FOR_VPC": Meaning(
            Cause.QUOTA, "often this means that the project has no quota of this type here"
        ),
        r"is not found or access is unauthorized|Permission denied on 'locations/": Meaning(
            Cause.PERMISSION,
            "the project may not use it: name others in tpu.zones",
            zone_closed=True,
        ),
        # seen of many zones, with code 3, at the end of the operation
        r"FLEX_START provisioning model is not supported": Meaning(
            Cause.BAD_SPEC,
            "this zone has no flex-start slices of the type: name others in tpu.zones",
        ),
        r"requested zone \"[^\"]*\" is not supported": Meaning(
            Cause.BAD_SPEC, "this zone has no TPUs: name others in tpu.zones", zone_closed=True
        ),
        # Compute Engine's text, as Cloud TPU documents none of its own
        r"The resource '[^']*(?:networks|serviceAccounts|reservations|disks)/[^']*' was not found": Meaning(
            Cause.BAD_SPEC, "correct the name in the file of the context, then run `tpujob doctor`"
        ),
        r"SERVICE_DISABLED|has not been used in project|API .{0,40}(?:disabled|not enabled)": Meaning(
            Cause.PERMISSION, "run `gcloud services enable tpu.googleapis.com`"
        ),
        r"BILLING_DISABLED|billing .{0,40}(?:disabled|to be enabled)": Meaning(
            Cause.PERMISSION, "link a billing account to the project"
        ),
        r"CONSUMER_INVALID|Permission denied on resource project|Project .{1,60} (?:not found|deleted)": Meaning(
            Cause.PERMISSION, "check the project's id, and that this account may use it"
        ),
        # No document of Google has this text; its list of service agents has the agent and its role
        r"denied when trying to access (?:the )?(?:customer|consumer) project": Meaning(
            Cause.PERMISSION,
            "Cloud TPU's own account has lost its role: grant roles/cloudtpu.serviceAgent on the project to "
            "service-NUMBER@gcp-sa-tpu.iam.gserviceaccount.com; on the project of a shared network, roles/tpu.xpnAgent",
        ),
        r"serviceAccounts\.actAs|does not have access to service account": Meaning(
            Cause.PERMISSION, "the backend needs roles/iam.serviceAccountUser on the hosts' account"
        ),
        r"IAM_PERMISSION_DENIED|Permission '[^']*' denied|Policy update access denied": Meaning(
            Cause.PERMISSION, "the account needs the role roles/tpu.admin"
        ),
        r"invalid AcceleratorType|found in the zonal accelerator configurations": Meaning(
            Cause.BAD_SPEC,
            "this zone does not offer that type, or the type does not support that runtime version",
        ),
        r"metadata from plugin failed|invalid_grant|Reauthentication": Meaning(None, LOGIN_HINT),
        r"RESOURCE_NOT_READY|UNSUPPORTED_OPERATION": Meaning(None),
    }
)

#: The cause of a failed call by its gRPC status, when no text decides it. None: a retry may succeed.
CALL_CODES: Mapping[str, Cause | None] = MappingProxyType(
    {
        "OK": None,
        "CANCELLED": None,
        "UNKNOWN": None,
        "INVALID_ARGUMENT": Cause.BAD_SPEC,
        "DEADLINE_EXCEEDED": None,
        "NOT_FOUND": Cause.BAD_SPEC,  # on creation: the project, the network or the reservation
        "ALREADY_EXISTS": Cause.BAD_SPEC,
        "PERMISSION_DENIED": Cause.PERMISSION,
        "RESOURCE_EXHAUSTED": Cause.QUOTA,  # inside a state it is a stockout
        "FAILED_PRECONDITION": None,
        "ABORTED": None,
        "OUT_OF_RANGE": Cause.BAD_SPEC,
        "UNIMPLEMENTED": Cause.BAD_SPEC,
        "INTERNAL": None,
        "UNAVAILABLE": None,
        "DATA_LOSS": None,
        "UNAUTHENTICATED": None,  # credentials are refreshed, or a person has to log in
    }
)

#: The cause of a FAILED queued resource by its error code, when ERROR_TEXTS has no row for its text. A missing code:
#: not known.
STATE_CODES: Mapping[int, Cause] = MappingProxyType(
    {
        3: Cause.BAD_SPEC,  # INVALID_ARGUMENT
        4: Cause.STOCKOUT,  # DEADLINE_EXCEEDED: its time in the queue is over
        5: Cause.BAD_SPEC,  # NOT_FOUND
        7: Cause.PERMISSION,  # PERMISSION_DENIED
        8: Cause.STOCKOUT,  # RESOURCE_EXHAUSTED
        9: Cause.STOCKOUT,  # FAILED_PRECONDITION: seen only of reservations that are full
    }
)

#: The first match counts. The name of a quota contains its scope even where the sentence does not.
_SCOPES: tuple[tuple[str, Scope], ...] = (
    (r"PerProjectPerRegion|\bin (?:the )?region\b|IP space of .*regions/", "region"),
    (
        r"PerProjectPerZone|\b(?:in|requested) (?:the )?zone\b|^Location |'locations/|\bZONE_|^The zone '",
        "zone",
    ),
)

#: the limit of a quota of TPUs, and where it holds. Quotas of other things, such as addresses, limit no chips.
_LIMIT = re.compile(
    r"'TPU\w*' (?:has been )?(?:exhausted|exceeded)\. Limit:? ([\d,]+)(?:\.0+)?(?: in (zone|region))?",
    re.IGNORECASE,
)


def meaning_of_call(code: str, message: str) -> Meaning:
    """Return the meaning of a failed call's gRPC status and message."""
    by_code = Meaning(CALL_CODES.get(code), LOGIN_HINT if code == "UNAUTHENTICATED" else "")
    return _with_limit(_meaning_of_text(message) or by_code, message)


def meaning_of_state(code: int, message: str) -> Meaning:
    """Return the meaning of the error code and message inside a FAILED queued resource."""
    return _with_limit(_meaning_of_text(message) or Meaning(STATE_CODES.get(code)), message)


def scope_of(message: str) -> Scope:
    """Return whether the message is about a region or a zone; empty: it does not say."""
    for pattern, scope in _SCOPES:
        if re.search(pattern, message):
            return scope
    return ""


def _with_limit(meaning: Meaning, message: str) -> Meaning:
    """Add where the error holds, and the limit of the exceeded quota: of several, the least, and its place."""
    limits = [(int(m[1].replace(",", "")), m[2]) for m in _LIMIT.finditer(message)]
    if meaning.cause is not Cause.QUOTA or not limits:
        return replace(meaning, scope=scope_of(message))
    limit, place = min(limits, key=lambda found: found[0])
    scope: Scope = "zone" if place == "zone" else "region" if place else scope_of(message)
    return replace(meaning, scope=scope, limit=limit)


def with_hint(message: str, meaning: Meaning) -> str:
    """Return the message, followed by the hint of its meaning."""
    return f"{message} ({meaning.hint})" if meaning.hint else message


def _meaning_of_text(message: str) -> Meaning | None:
    for pattern, meaning in ERROR_TEXTS.items():
        if re.search(pattern, message, re.IGNORECASE):
            return meaning
    return None
