"""What the words of the Cloud TPU API mean in ours: states, error codes and error texts. Tables and their look-up only.

Names are looked up as text, so that a value newer than the installed library is a missing row, which means Unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tpujob.domain.model import Cause, SliceState

#: Node.State. None: it says nothing that can be acted on.
NODE_STATES: Mapping[str, SliceState | None] = MappingProxyType(
    {
        "STATE_UNSPECIFIED": None,
        "CREATING": SliceState.CREATING,
        "READY": SliceState.READY,
        "RESTARTING": SliceState.REPAIRING,
        "REIMAGING": SliceState.REPAIRING,
        "DELETING": SliceState.DELETING,
        "REPAIRING": SliceState.REPAIRING,
        "STOPPED": SliceState.STOPPED,
        "STOPPING": SliceState.STOPPED,
        "STARTING": SliceState.REPAIRING,
        "PREEMPTED": SliceState.PREEMPTED,
        "TERMINATED": SliceState.PREEMPTED,  # by maintenance, or by the end of a preemptible's day
        # A hidden node comes back by itself.
        "HIDING": SliceState.REPAIRING,
        "HIDDEN": SliceState.REPAIRING,
        "UNHIDING": SliceState.REPAIRING,
        "UNKNOWN": None,  # after a failed repair
    }
)

#: QueuedResourceState.State. None: unknown. ACTIVE says that the node decides; SUSPENDING and SUSPENDED are those of
#: the service, and mean STOPPED where a person is the initiator.
QUEUED_STATES: Mapping[str, SliceState | None] = MappingProxyType(
    {
        "STATE_UNSPECIFIED": None,
        "CREATING": SliceState.WAITING,
        "ACCEPTED": SliceState.WAITING,
        "PROVISIONING": SliceState.CREATING,
        "FAILED": SliceState.FAILED,
        "DELETING": SliceState.DELETING,
        "ACTIVE": SliceState.READY,
        "SUSPENDING": SliceState.PREEMPTED,
        "SUSPENDED": SliceState.PREEMPTED,
        "WAITING_FOR_RESOURCES": SliceState.WAITING,
    }
)


@dataclass(frozen=True, slots=True)
class ErrorText:
    """A text that settles what an error means, whatever its code. No cause: it may succeed later."""

    pattern: str  #: a regular expression, found anywhere in the message
    cause: Cause | None
    hint: str = ""


#: The first that matches counts.
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
    ErrorText(r"per minute|Rate Limit|rateLimitExceeded", None),
    ErrorText(r"RESOURCE_OPERATION_RATE_EXCEEDED", None),
    ErrorText(
        r"Limit:? 0\b", Cause.QUOTA, "the project has no quota of this type here: ask for some"
    ),
    ErrorText(r"QuotaFailure", Cause.QUOTA),
    ErrorText(r"Quota '[^']*' exhausted", Cause.QUOTA),
    ErrorText(r"QUOTA_EXCEEDED|quotaExceeded", Cause.QUOTA),
    ErrorText(
        r"IN_USE_ADDRESSES", Cause.QUOTA, "too few external IP addresses: ask for more, or use none"
    ),
    ErrorText(
        r"SUBNET_NOT_FOUND_FOR_VPC",
        Cause.QUOTA,
        "often this means that the project has no quota of this type here",
    ),
    ErrorText(
        r"is not found or access is unauthorized",
        Cause.PERMISSION,
        "this zone is not open to the project: name others in tpu.zones",
    ),
    ErrorText(r"IAM_PERMISSION_DENIED", Cause.PERMISSION),
    ErrorText(r"Policy update access denied", Cause.PERMISSION),
    ErrorText(r"invalid AcceleratorType", Cause.BAD_SPEC, "this zone does not have that type"),
    ErrorText(r"RESOURCE_NOT_READY", None),
    ErrorText(r"UNSUPPORTED_OPERATION", None),
)

#: What a call's gRPC status means when no text settles it. None: it may succeed later.
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

#: The same for the error inside a FAILED queued resource, by number. What is missing is left open.
STATE_CODES: Mapping[int, Cause] = MappingProxyType(
    {
        3: Cause.BAD_SPEC,  # INVALID_ARGUMENT
        4: Cause.STOCKOUT,  # DEADLINE_EXCEEDED: its time in the queue is over
        5: Cause.BAD_SPEC,  # NOT_FOUND
        7: Cause.PERMISSION,  # PERMISSION_DENIED
        8: Cause.STOCKOUT,  # RESOURCE_EXHAUSTED
    }
)


def text_meaning(message: str) -> ErrorText | None:
    """The row that settles it, if any."""
    for row in ERROR_TEXTS:
        if re.search(row.pattern, message, re.IGNORECASE):
            return row
    return None


def call_cause(code: str, message: str) -> tuple[Cause | None, str]:
    """Cause and hint of a call that was answered with an error; no cause: it may succeed later."""
    row = text_meaning(message)
    return (row.cause, row.hint) if row else (CALL_CODES.get(code), "")


def state_cause(code: int, message: str) -> Cause | None:
    """Cause of a queued resource's failure; None: not known."""
    row = text_meaning(message)
    return (row.cause if row else None) or STATE_CODES.get(code)
