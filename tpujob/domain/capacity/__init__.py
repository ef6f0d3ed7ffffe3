"""Which job gets a slice next, and why another one waits. Pure: the same records give the same plan.

Whether a slice may be requested just now is in `domain/placement/circuits.py`; what a job does about its place, in
`domain/decide/queued.py`.
"""

from tpujob.domain.capacity.dependencies import JobEnd, Met, check_edge, facts_of
from tpujob.domain.capacity.entries import QueueEntry, entry, waiting_since
from tpujob.domain.capacity.planning import Others, QueuePlan, plan
from tpujob.domain.capacity.settings import ANYTHING, NO_LIMITS, OwnerLimits, QueueSettings
from tpujob.domain.capacity.usage import RecentUsage, used
from tpujob.domain.capacity.waiting_reasons import describe

__all__ = [
    "ANYTHING",
    "NO_LIMITS",
    "JobEnd",
    "Met",
    "Others",
    "OwnerLimits",
    "QueueEntry",
    "QueuePlan",
    "QueueSettings",
    "RecentUsage",
    "check_edge",
    "describe",
    "entry",
    "facts_of",
    "plan",
    "used",
    "waiting_since",
]
