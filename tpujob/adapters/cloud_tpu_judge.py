"""What a queued resource and a node, as the API shows them, say together about one slice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpujob.adapters.cloud_tpu_errors import explained, of_state
from tpujob.adapters.cloud_tpu_tables import INITIATORS, NODE_HEALTH, NODE_STATES, QUEUED_STATES
from tpujob.domain.model import Endpoint, Present, SliceState, Unknown


@dataclass(frozen=True, slots=True)
class QueuedSeen:
    state: str  #: the API's word
    initiator: str = "STATE_INITIATOR_UNSPECIFIED"
    error_code: int = 0
    error: str = ""
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])  #: of the node it asks for
    created_at: float = 0.0
    type: str = ""  #: of the node it asks for
    pricing: str = ""  #: `spot`, `on-demand` or `reserved`


@dataclass(frozen=True, slots=True)
class NodeSeen:
    state: str
    endpoints: tuple[Endpoint, ...] = ()
    health: str = "HEALTH_UNSPECIFIED"
    described: str = ""  #: health in the cloud's own words, and its newest symptom
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    created_at: float = 0.0
    type: str = ""
    pricing: str = ""


def judge(queued: QueuedSeen | None, node: NodeSeen | None) -> Present | Unknown | None:
    """The state of a slice; None when there is neither a queued resource nor a node."""
    if queued is None:
        return _node(node) if node else None
    state = QUEUED_STATES.get(queued.state)
    if state is None:
        return Unknown(f"the queued resource is in state {queued.state}")
    if state is SliceState.DELETING:
        return Present(state, detail=f"the queued resource is {queued.state}")
    if state is SliceState.FAILED:
        return _failed(queued)
    if state is SliceState.PREEMPTED:
        return _suspended(queued, node)
    if node and NODE_STATES.get(node.state) is SliceState.PREEMPTED:
        return _node(node)  # its queued resource follows a little later
    if state is SliceState.READY:
        if node is None:
            return Unknown("the queued resource is ACTIVE, but its node is not found")
        return _node(node)
    return Present(state, detail=queued.state)


def _failed(queued: QueuedSeen) -> Present:
    meaning = of_state(queued.error_code, queued.error)
    said = explained(queued.error or "no reason was given", meaning, queued.zone)
    return Present(SliceState.FAILED, detail=said, cause=meaning.cause)


def _suspended(queued: QueuedSeen, node: NodeSeen | None) -> Present | Unknown:
    """By the service it is a preemption; so is what has left a preempted node behind, whoever suspended it."""
    detail = f"the queued resource is {queued.state}"
    if node is not None and NODE_STATES.get(node.state) is SliceState.PREEMPTED:
        return Present(SliceState.PREEMPTED, detail=detail)
    by_person = INITIATORS.get(queued.initiator)
    if by_person is None:
        return Unknown(f"{detail}, by {queued.initiator}")
    if by_person:
        return Present(SliceState.STOPPED, detail=f"{detail}, by a person")
    return Present(SliceState.PREEMPTED, detail=detail)


def _node(node: NodeSeen) -> Present | Unknown:
    state = NODE_STATES.get(node.state)
    if state is None:
        return Unknown(f"the node is in state {node.state}")
    if state is SliceState.READY and not node.endpoints:
        return Present(SliceState.CREATING, detail="READY, but without addresses")
    if state is SliceState.READY:
        return _ready(node)
    return Present(state, node.endpoints, f"the node is {node.state}")


def _ready(node: NodeSeen) -> Present | Unknown:
    health = NODE_HEALTH.get(node.health)
    if health is None:
        return Unknown(f"the node is READY, and its health is {node.health}")
    if not health:
        return Present(SliceState.READY, node.endpoints)
    said = ": ".join(word for word in (node.health, health, node.described) if word)
    return Present(SliceState.READY, node.endpoints, said)
