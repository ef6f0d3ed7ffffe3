"""The state of one slice, from its queued resource and its nodes as the API shows them. Pure.

A Multislice is one slice of ours with several nodes: it is ready when all of them are, and lost when one of them is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tpujob.adapters.cloud_tpu.errors import explained, of_state
from tpujob.domain.model import Endpoint
from tpujob.domain.observations import Present, SliceState, Unknown


@dataclass(frozen=True, slots=True)
class QueuedSeen:
    state: str  #: the API's word
    initiator: str = "STATE_INITIATOR_UNSPECIFIED"
    error_code: int = 0
    error: str = ""
    marks: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  #: whose it is (`request.MARKS`)
    created_at: float = 0.0
    type: str = ""  #: of the node it asks for
    pricing: str = ""  #: `spot`, `on-demand` or `reserved`
    nodes: int = 1  #: how many it asks for, all of one kind

    @property
    def suspending(self) -> bool:
        """Whether a deletion should wait until it is SUSPENDED."""
        return self.state == "SUSPENDING"


@dataclass(frozen=True, slots=True)
class NodeSeen:
    state: str
    endpoints: tuple[Endpoint, ...] = ()
    health: str = "HEALTH_UNSPECIFIED"
    described: str = ""  #: health in the cloud's own words, and its newest symptom
    marks: Mapping[str, str] = field(default_factory=dict[str, str])  #: whose it is
    created_at: float = 0.0
    type: str = ""
    pricing: str = ""


def slice_state(
    queued: QueuedSeen | None, nodes: Sequence[NodeSeen | None]
) -> Present | Unknown | None:
    """Return the state of a slice; None when there is neither a queued resource nor a node. `nodes`: every one that it
    should have, in their order; None in place of one that does not exist."""
    there = [node for node in nodes if node is not None]
    if queued is None:
        return _together(nodes) if there else None
    if by_itself := without_nodes(queued):
        return by_itself
    state = QUEUED_STATES.get(queued.state)
    if state is None:
        return Unknown(f"the queued resource is in state {queued.state}")
    if state is SliceState.PREEMPTED:
        return _suspended(queued, there)
    if any(map(_preempted, there)):
        return _together(nodes)  # its queued resource follows a little later
    if state is SliceState.READY:
        if not there:
            return Unknown("the queued resource is ACTIVE, but its node is not found")
        return _together(nodes)
    return Present(state, detail=queued.state)


def without_nodes(queued: QueuedSeen) -> Present | None:
    """The state of a slice whose queued resource tells it, whatever its nodes do; None: it depends on these."""
    state, detail = QUEUED_STATES.get(queued.state), f"the queued resource is {queued.state}"
    if state is SliceState.DELETING:
        return Present(state, detail=detail)
    if state is SliceState.FAILED:
        return _failed(queued)
    if state is SliceState.PREEMPTED and INITIATORS.get(queued.initiator) is False:
        return Present(state, detail=detail, suspending=queued.suspending)
    return None


def _failed(queued: QueuedSeen) -> Present:
    meaning = of_state(queued.error_code, queued.error)
    detail = explained(queued.error or "no reason was given", meaning)
    return Present(SliceState.FAILED, detail=detail, cause=meaning.cause, scope=meaning.scope)


def _suspended(queued: QueuedSeen, nodes: Sequence[NodeSeen]) -> Present | Unknown:
    """Return PREEMPTED where the service suspended the queued resource, or a node was preempted."""
    detail, suspending = f"the queued resource is {queued.state}", queued.suspending
    if any(map(_preempted, nodes)):
        return Present(SliceState.PREEMPTED, detail=detail, suspending=suspending)
    if queued.initiator not in INITIATORS:
        return Unknown(f"{detail}, by {queued.initiator}")
    return Present(SliceState.STOPPED, detail=f"{detail}, by a person", suspending=suspending)


def _preempted(node: NodeSeen) -> bool:
    return NODE_STATES.get(node.state) is SliceState.PREEMPTED


#: where the nodes of a Multislice differ, the first of these decides: losses, then Unknown (None), then what we wait
#: for
_ORDER: Sequence[SliceState | None] = (
    SliceState.PREEMPTED,
    SliceState.STOPPED,
    SliceState.DELETING,
    SliceState.FAILED,
    None,
    SliceState.REPAIRING,
    SliceState.CREATING,
    SliceState.READY,
)


def _together(nodes: Sequence[NodeSeen | None]) -> Present | Unknown:
    """A node that is missing while others exist counts as preempted. Google documents that it may recreate a lost slice
    of a Multislice and restart the others ("auto-repair"), but not when, so we do not wait for it."""
    if len(nodes) == 1 and nodes[0] is not None:
        return _node(nodes[0])
    seen = [_node(node, f"node {place}") for place, node in enumerate(nodes) if node is not None]
    found = min(seen, key=lambda one: _ORDER.index(one.state if isinstance(one, Present) else None))
    leaving = isinstance(found, Present) and found.state in _ORDER[: _ORDER.index(None)]
    if None in nodes and not leaving:
        gone = f"node {nodes.index(None)} of {len(nodes)} does not exist any more"
        return Present(SliceState.PREEMPTED, detail=gone)
    if isinstance(found, Unknown) or found.state is not SliceState.READY:
        return found if isinstance(found, Unknown) else replace(found, endpoints=())
    return _all_ready([one for one in seen if isinstance(one, Present)])


def _all_ready(seen: Sequence[Present]) -> Present:
    """The hosts of all nodes, numbered through, which needs the same number of hosts on each."""
    hosts = len(seen[0].endpoints)
    if any(len(one.endpoints) != hosts for one in seen):
        return Present(SliceState.CREATING, detail="READY, but without all addresses")
    endpoints = tuple(
        replace(endpoint, host=place * hosts + endpoint.host)
        for place, one in enumerate(seen)
        for endpoint in one.endpoints
    )
    details = [f"node {place}: {one.detail}" for place, one in enumerate(seen) if one.detail]
    return Present(SliceState.READY, endpoints, "; ".join(details))


def _node(node: NodeSeen, who: str = "the node") -> Present | Unknown:
    state = NODE_STATES.get(node.state)
    if state is None:
        return Unknown(f"{who} is in state {node.state}")
    if state is SliceState.READY and not node.endpoints:
        return Present(SliceState.CREATING, detail="READY, but without addresses")
    if state is SliceState.READY:
        return _ready(node, who)
    return Present(state, node.endpoints, f"{who} is {node.state}")


def _ready(node: NodeSeen, who: str) -> Present | Unknown:
    health = NODE_HEALTH.get(node.health)
    if health is None:
        return Unknown(f"{who} is READY, and its health is {node.health}")
    if not health:
        return Present(SliceState.READY, node.endpoints)
    detail = ": ".join(word for word in (node.health, health, node.described) if word)
    return Present(SliceState.READY, node.endpoints, detail)


# What the states of the Cloud TPU API mean in ours. Tables only; those of its errors are in `errors.py`.


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
