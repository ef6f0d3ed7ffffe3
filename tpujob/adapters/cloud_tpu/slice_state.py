"""Derives the state of a slice from its queued resource and its nodes, as the API shows them. Pure.

A Multislice is one slice of ours with several nodes: it is ready when all of them are, and lost when one of them is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tpujob.adapters.cloud_tpu.errors import meaning_of_state, with_hint
from tpujob.domain.model import Endpoint
from tpujob.domain.observations import Present, SliceState, Unknown
from tpujob.domain.text import duration


@dataclass(frozen=True, slots=True)
class QueuedSeen:
    state: str  #: the API's word
    initiator: str = "STATE_INITIATOR_UNSPECIFIED"
    error_code: int = 0
    error: str = ""
    marks: Mapping[str, str] = field(default_factory=dict[str, str])  #: `request.MARKS`
    created_at: float = 0.0
    type: str = ""  #: of its nodes
    pricing: str = ""  #: a name in `PRICINGS`
    nodes: int = 1  #: how many it requests, all of one kind
    max_run: float | None = (
        None  #: seconds that its nodes run at most; None: no limit, or not read (see `rest.py`)
    )

    @property
    def suspending(self) -> bool:
        """Whether a deletion should wait until the state is SUSPENDED."""
        return self.state == "SUSPENDING"


@dataclass(frozen=True, slots=True)
class NodeSeen:
    state: str
    endpoints: tuple[Endpoint, ...] = ()
    health: str = "HEALTH_UNSPECIFIED"
    described: str = ""  #: the cloud's description of the health, and the newest symptom
    marks: Mapping[str, str] = field(default_factory=dict[str, str])  #: `request.MARKS`
    created_at: float = 0.0
    type: str = ""
    pricing: str = ""


def slice_state(
    queued: QueuedSeen | None, nodes: Sequence[NodeSeen | None]
) -> Present | Unknown | None:
    """Return the state of a slice; None when neither its queued resource nor any node exists. `nodes`: in their order,
    None in place of a node that does not exist."""
    state = _state(queued, nodes)
    created = max((node.created_at for node in nodes if node), default=0.0)
    return replace(state, created_at=created) if isinstance(state, Present) and created else state


def _state(queued: QueuedSeen | None, nodes: Sequence[NodeSeen | None]) -> Present | Unknown | None:
    existing = [node for node in nodes if node is not None]
    if queued is None:
        return _combined_state(nodes) if existing else None
    if by_itself := state_without_nodes(queued):
        return by_itself
    state = QUEUED_STATES.get(queued.state)
    if state is None:
        return Unknown(f"the queued resource is in state {queued.state}")
    if state is SliceState.PREEMPTED:
        return _suspended_state(queued, existing)
    if any(map(_is_preempted, existing)):
        return _combined_state(nodes)  # the queued resource shows it a little later
    if state is SliceState.READY:
        if not existing:
            return Unknown("the queued resource is ACTIVE, but its node is not found")
        return _combined_state(nodes)
    return Present(state, detail=queued.state)


def state_without_nodes(queued: QueuedSeen) -> Present | None:
    """Return the state of a slice if its queued resource alone decides it; None when it depends on the nodes."""
    limit = "" if queued.max_run is None else f", for at most {duration(queued.max_run)},"
    detail = f"the queued resource{limit} is {queued.state}"
    state = QUEUED_STATES.get(queued.state)
    if state is SliceState.DELETING:
        return Present(state, detail=detail)
    if state is SliceState.FAILED:
        return _failed_state(queued)
    if state is SliceState.PREEMPTED and INITIATORS.get(queued.initiator) is False:
        created = queued.created_at
        return Present(state, detail=detail, suspending=queued.suspending, created_at=created)
    return None


def _failed_state(queued: QueuedSeen) -> Present:
    meaning = meaning_of_state(queued.error_code, queued.error)
    detail = with_hint(queued.error or "no reason was given", meaning)
    return Present(
        SliceState.FAILED,
        detail=detail,
        cause=meaning.cause,
        scope=meaning.scope,
        limit=meaning.limit,
    )


def _suspended_state(queued: QueuedSeen, nodes: Sequence[NodeSeen]) -> Present | Unknown:
    """Return PREEMPTED if a node was preempted, STOPPED if a person suspended the queued resource, else Unknown."""
    detail, suspending = f"the queued resource is {queued.state}", queued.suspending
    if any(map(_is_preempted, nodes)):
        return Present(SliceState.PREEMPTED, detail=detail, suspending=suspending)
    if queued.initiator not in INITIATORS:
        return Unknown(f"{detail}, by {queued.initiator}")
    stopped, created = f"{detail}, by a person", queued.created_at
    return Present(SliceState.STOPPED, detail=stopped, suspending=suspending, created_at=created)


def _is_preempted(node: NodeSeen) -> bool:
    return NODE_STATES.get(node.state) is SliceState.PREEMPTED


#: the first of these states that a node of a Multislice has decides: losses, then Unknown (None), then states that pass
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


def _combined_state(nodes: Sequence[NodeSeen | None]) -> Present | Unknown:
    """Return the state of a slice by its nodes, of which at least one exists. A node that is missing while others exist
    counts as preempted. Google documents that it may recreate a lost slice of a Multislice and restart the others
    ("auto-repair"), but not when. We do not wait for that."""
    if len(nodes) == 1 and nodes[0] is not None:
        return _node_state(nodes[0])
    states = [
        _node_state(node, f"node {place}") for place, node in enumerate(nodes) if node is not None
    ]
    worst = min(states, key=_rank)
    if None in nodes and _rank(worst) >= _ORDER.index(None):
        missing = f"node {nodes.index(None)} of {len(nodes)} does not exist any more"
        return Present(SliceState.PREEMPTED, detail=missing)
    if isinstance(worst, Unknown):
        return worst
    if worst.state is not SliceState.READY:
        return replace(worst, endpoints=())
    return _ready_state([state for state in states if isinstance(state, Present)])


def _rank(state: Present | Unknown) -> int:
    return _ORDER.index(state.state if isinstance(state, Present) else None)


def _ready_state(nodes: Sequence[Present]) -> Present:
    """Return READY with the hosts of all nodes, numbered through; CREATING while nodes differ in number of hosts."""
    hosts = len(nodes[0].endpoints)
    if any(len(node.endpoints) != hosts for node in nodes):
        return Present(SliceState.CREATING, detail="READY, but without all addresses")
    endpoints = tuple(
        replace(endpoint, host=place * hosts + endpoint.host)
        for place, node in enumerate(nodes)
        for endpoint in node.endpoints
    )
    details = [f"node {place}: {node.detail}" for place, node in enumerate(nodes) if node.detail]
    return Present(SliceState.READY, endpoints, "; ".join(details))


def _node_state(node: NodeSeen, label: str = "the node") -> Present | Unknown:
    state = NODE_STATES.get(node.state)
    if state is None:
        return Unknown(f"{label} is in state {node.state}")
    if state is SliceState.READY and not node.endpoints:
        return Present(SliceState.CREATING, detail="READY, but without addresses")
    if state is SliceState.READY:
        return _ready_node_state(node, label)
    return Present(state, node.endpoints, f"{label} is {node.state}")


def _ready_node_state(node: NodeSeen, label: str) -> Present | Unknown:
    health = NODE_HEALTH.get(node.health)
    if health is None:
        return Unknown(f"{label} is READY, and its health is {node.health}")
    if not health:
        return Present(SliceState.READY, node.endpoints)
    detail = ": ".join(word for word in (node.health, health, node.described) if word)
    return Present(SliceState.READY, node.endpoints, detail)


# Our states for those of the Cloud TPU API. Tables only; those for its errors are in `errors.py`.


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

#: QueuedResourceState.State. None: Unknown. With ACTIVE the nodes' states count. SUSPENDING and SUSPENDED mean STOPPED
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

#: Node.Health of a READY node: the text for it; empty: none. Never a reason to delete a slice: its agents report
#: whether its hosts work.
NODE_HEALTH: Mapping[str, str] = MappingProxyType(
    {
        "HEALTH_UNSPECIFIED": "",
        "HEALTHY": "",
        "TIMEOUT": "the node does not answer the cloud",
        "UNHEALTHY_TENSORFLOW": "its software does not answer the cloud",
        "UNHEALTHY_MAINTENANCE": "maintenance is under way",
    }
)
