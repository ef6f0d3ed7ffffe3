"""Which job gets a slice next, and why another one waits. Pure: the same records give the same plan.

Whether a slice may be requested just now is in `domain/placement/circuits.py`; what a job does about its place, in
`domain/decide/queued.py`.
"""

from tpujob.domain.capacity.dependencies import End, Met, check_edge, facts_of
from tpujob.domain.capacity.entries import Entry, entry
from tpujob.domain.capacity.places import Order, Place, Reason, ReasonKind, describe
from tpujob.domain.capacity.plan import Others, Plan, plan
from tpujob.domain.capacity.settings import NO_LIMITS, Limits, QueueSettings
from tpujob.domain.capacity.usage import Usage, used

__all__ = [
    "NO_LIMITS",
    "End",
    "Entry",
    "Limits",
    "Met",
    "Order",
    "Others",
    "Place",
    "Plan",
    "QueueSettings",
    "Reason",
    "ReasonKind",
    "Usage",
    "check_edge",
    "describe",
    "entry",
    "facts_of",
    "plan",
    "used",
]
