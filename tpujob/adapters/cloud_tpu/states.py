"""What the states of the Cloud TPU API mean in ours. Tables only; those of its errors are in `errors.py`.

Names are looked up as text, so that a value newer than the installed library is a missing row, which means Unknown.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tpujob.domain.observations import SliceState

#: Node.State. None: Unknown.
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

#: QueuedResourceState.State. None: Unknown. With ACTIVE the node's state counts. SUSPENDING and SUSPENDED mean STOPPED
#: when a person is the initiator.
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

#: QueuedResourceState.StateInitiator: whether a person suspended it.
INITIATORS: Mapping[str, bool] = MappingProxyType(
    {"STATE_INITIATOR_UNSPECIFIED": False, "USER": True, "SERVICE": False}
)

#: Node.Health of a READY node: the text for it; empty: none. Never a reason to delete: its agents report whether its
#: hosts work.
NODE_HEALTH: Mapping[str, str] = MappingProxyType(
    {
        "HEALTH_UNSPECIFIED": "",
        "HEALTHY": "",
        "TIMEOUT": "the node does not answer the cloud",
        "UNHEALTHY_TENSORFLOW": "its software does not answer the cloud",
        "UNHEALTHY_MAINTENANCE": "maintenance is under way",
    }
)
