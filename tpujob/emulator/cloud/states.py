"""The states of a node and of a queued resource, and the moves between them. Spelled as in the API.

The order of a queued resource's states is documented; that a node can be preempted while it is created is in an error
text that SkyPilot handles ("update is not supported while in state PREEMPTED"). Deletion is possible from any state.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class NodeState(StrEnum):
    CREATING = "CREATING"
    READY = "READY"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    STARTING = "STARTING"
    REPAIRING = "REPAIRING"
    PREEMPTED = "PREEMPTED"
    TERMINATED = "TERMINATED"
    DELETING = "DELETING"


class QueuedState(StrEnum):
    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    PROVISIONING = "PROVISIONING"
    ACTIVE = "ACTIVE"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    DELETING = "DELETING"


_N, _Q = NodeState, QueuedState

#: the states that may follow each state of a node
NODE_MOVES: Mapping[str, frozenset[NodeState]] = MappingProxyType(
    {
        _N.CREATING: frozenset({_N.READY, _N.PREEMPTED, _N.DELETING}),
        _N.READY: frozenset({_N.STOPPING, _N.REPAIRING, _N.PREEMPTED, _N.TERMINATED, _N.DELETING}),
        _N.REPAIRING: frozenset({_N.READY, _N.PREEMPTED, _N.TERMINATED, _N.DELETING}),
        _N.STOPPING: frozenset({_N.STOPPED, _N.DELETING}),
        _N.STOPPED: frozenset({_N.STARTING, _N.DELETING}),
        _N.STARTING: frozenset({_N.READY, _N.DELETING}),
        _N.PREEMPTED: frozenset({_N.DELETING}),
        _N.TERMINATED: frozenset({_N.DELETING}),
        _N.DELETING: frozenset(),
    }
)

#: the states that may follow each state of a queued resource; a reset leads back to ACCEPTED
QUEUED_MOVES: Mapping[str, frozenset[QueuedState]] = MappingProxyType(
    {
        _Q.CREATING: frozenset({_Q.ACCEPTED, _Q.FAILED, _Q.DELETING}),
        _Q.ACCEPTED: frozenset({_Q.WAITING_FOR_RESOURCES, _Q.PROVISIONING, _Q.FAILED, _Q.DELETING}),
        _Q.WAITING_FOR_RESOURCES: frozenset({_Q.PROVISIONING, _Q.FAILED, _Q.DELETING}),
        _Q.PROVISIONING: frozenset({_Q.ACTIVE, _Q.SUSPENDING, _Q.FAILED, _Q.DELETING}),
        _Q.ACTIVE: frozenset({_Q.SUSPENDING, _Q.DELETING}),
        _Q.SUSPENDING: frozenset({_Q.SUSPENDED, _Q.DELETING}),
        _Q.SUSPENDED: frozenset({_Q.ACCEPTED, _Q.DELETING}),
        _Q.FAILED: frozenset({_Q.ACCEPTED, _Q.DELETING}),
        _Q.DELETING: frozenset(),
    }
)
