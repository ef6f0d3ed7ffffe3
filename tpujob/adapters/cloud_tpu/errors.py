"""What the errors of the Cloud TPU API mean in ours: by text, then by code. Tables and their look-up only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Scope


@dataclass(frozen=True, slots=True)
class ErrorText:
    """A text that decides what an error means, whatever its code. No cause: it may succeed later."""

    pattern: str  #: a regular expression, found anywhere in the message, in any case
    cause: Cause | None
    hint: str = ""  #: what a person may do about it
    zone_closed: bool = False  #: the project may not use that zone at all


@dataclass(frozen=True, slots=True)
class Meaning:
    cause: Cause | None  #: None: it may succeed later; of a state: not known
    hint: str = ""
    scope: Scope = ""  #: where it holds; empty: the text does not say
    zone_closed: bool = False  #: the project may not use that zone at all


_LOGIN = f"run `{LOGIN}`"

#: The first that matches counts. RESOURCE_EXHAUSTED alone may be capacity, quota or rate, so those come first.
ERROR_TEXTS: tuple[ErrorText, ...] = (
    ErrorText(r"no more capacity", Cause.STOCKOUT),
    ErrorText(r"ZONE_RESOURCE_POOL_EXHAUSTED", Cause.STOCKOUT),
    ErrorText(r"insufficientCapacity", Cause.STOCKOUT),
    ErrorText(
        r"Insufficient reserved capacity",
        Cause.STOCKOUT,
        "the reservation is full, or is not one for this type and zone",
    ),
    ErrorText(r"lack of capacity", Cause.STOCKOUT),
    ErrorText(r"Requested resource is exhausted", Cause.STOCKOUT),
    ErrorText(r"not supported while in state PREEMPTED", Cause.PREEMPTED),
    ErrorText(r"requests?'? per |per minute|rate.?limit|RESOURCE_OPERATION_RATE_EXCEEDED", None),
    ErrorText(
        r"Limit:? 0(?:\.0+)?(?!\.?\d)",
        Cause.QUOTA,
        "no access to this type here: the project's quota is 0; ask for some, or name another place",
    ),
    ErrorText(
        r"IN_USE_ADDRESSES", Cause.QUOTA, "too few external IP addresses: ask for more, or use none"
    ),
    ErrorText(r"QuotaFailure", Cause.QUOTA),
    ErrorText(r"Quota (?:limit )?'[^']*' (?:has been )?(?:exhausted|exceeded)", Cause.QUOTA),
    ErrorText(r"QUOTA_EXCEEDED|quotaExceeded", Cause.QUOTA),
    ErrorText(
        r"SUBNET_NOT_FOUND_FOR_VPC",
        Cause.QUOTA,
        "often this means that the project has no quota of this type here",
    ),
    ErrorText(
        r"is not found or access is unauthorized",
        Cause.PERMISSION,
        "this zone is not open to the project: name others in tpu.zones",
        zone_closed=True,
    ),
    ErrorText(
        r"SERVICE_DISABLED|has not been used in project|API .{0,40}(?:disabled|not enabled)",
        Cause.PERMISSION,
        "run `gcloud services enable tpu.googleapis.com`",
    ),
    ErrorText(
        r"BILLING_DISABLED|billing .{0,40}(?:disabled|to be enabled)",
        Cause.PERMISSION,
        "link a billing account to the project",
    ),
    ErrorText(
        r"CONSUMER_INVALID|Permission denied on resource project|Project .{1,60} (?:not found|deleted)",
        Cause.PERMISSION,
        "check the project's id, and that this account may use it",
    ),
    ErrorText(
        r"IAM_PERMISSION_DENIED|Permission '[^']*' denied",
        Cause.PERMISSION,
        "the account needs the role roles/tpu.admin",
    ),
    ErrorText(r"Policy update access denied", Cause.PERMISSION),
    ErrorText(r"invalid AcceleratorType", Cause.BAD_SPEC, "this zone does not have that type"),
    ErrorText(r"Getting metadata from plugin failed|invalid_grant|Reauthentication", None, _LOGIN),
    ErrorText(r"RESOURCE_NOT_READY", None),
    ErrorText(r"UNSUPPORTED_OPERATION", None),
)

#: What a call's gRPC status means when no text decides it. None: it may succeed later.
CALL_CODES: Mapping[str, Cause | None] = MappingProxyType(
    {
        "OK": None,
        "CANCELLED": None,
        "UNKNOWN": None,
        "INVALID_ARGUMENT": Cause.BAD_SPEC,
        "DEADLINE_EXCEEDED": None,
        "NOT_FOUND": Cause.BAD_SPEC,  # of a create: the project, the network or the reservation
        "ALREADY_EXISTS": Cause.BAD_SPEC,
        "PERMISSION_DENIED": Cause.PERMISSION,
        "RESOURCE_EXHAUSTED": Cause.QUOTA,  # as the answer to a call; inside a state it is a stockout
        "FAILED_PRECONDITION": None,
        "ABORTED": None,
        "OUT_OF_RANGE": Cause.BAD_SPEC,
        "UNIMPLEMENTED": Cause.BAD_SPEC,
        "INTERNAL": None,
        "UNAVAILABLE": None,
        "DATA_LOSS": None,
        "UNAUTHENTICATED": None,  # expired credentials come back; a person may have to see to it
    }
)

#: What to do about such a status, when no text decides it.
_CALL_HINTS: Mapping[str, str] = MappingProxyType({"UNAUTHENTICATED": _LOGIN})

#: The same for the error inside a FAILED queued resource, by number. A missing number: no cause is known.
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

#: The first that matches counts: the name of a quota says it even where the sentence does not.
_SCOPES: tuple[tuple[str, Scope], ...] = (
    (r"PerProjectPerRegion|\bin (?:the )?region\b", "region"),
    (r"PerProjectPerZone|\bin (?:the )?zone\b|^Location \S+ is not found|\bZONE_", "zone"),
)


def of_call(code: str, message: str) -> Meaning:
    """The meaning of a call's error."""
    row = _settled(message)
    if row:
        return Meaning(row.cause, row.hint, scope_of(message), row.zone_closed)
    return Meaning(CALL_CODES.get(code), _CALL_HINTS.get(code, ""), scope_of(message))


def of_state(code: int, message: str) -> Meaning:
    """The meaning of the error inside a queued resource that FAILED."""
    row = _settled(message)
    cause = (row.cause if row else None) or STATE_CODES.get(code)
    return Meaning(cause, row.hint if row else "", scope_of(message))


def no_credentials(reason: object) -> tuple[str, Meaning]:
    """The library has no credentials."""
    return f"no credentials for Google Cloud: {reason}", Meaning(None, _LOGIN)


def scope_of(message: str) -> Scope:
    for pattern, scope in _SCOPES:
        if re.search(pattern, message):
            return scope
    return ""


def explained(message: str, meaning: Meaning) -> str:
    """The message with what a person may do about it."""
    return f"{message} ({meaning.hint})" if meaning.hint else message


def _settled(message: str) -> ErrorText | None:
    for row in ERROR_TEXTS:
        if re.search(row.pattern, message, re.IGNORECASE):
            return row
    return None
