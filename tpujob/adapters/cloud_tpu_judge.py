"""What a queued resource and a node, as the API shows them, say together about one slice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpujob.adapters.cloud_tpu_tables import NODE_STATES, QUEUED_STATES, state_cause
from tpujob.domain.model import Endpoint, Present, SliceState, Unknown


@dataclass(frozen=True, slots=True)
class QueuedSeen:
    state: str  #: the API's word
    initiator: str = ""  #: USER, SERVICE
    error_code: int = 0
    error: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])  #: of the node it asks for
    created_at: float = 0.0
    type: str = ""  #: of the node it asks for
    pricing: str = ""  #: `spot`, `on-demand` or `reserved`


@dataclass(frozen=True, slots=True)
class NodeSeen:
    state: str
    endpoints: tuple[Endpoint, ...] = ()
    detail: str = ""  #: health, where it is not good
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
        cause = state_cause(queued.error_code, queued.error)
        return Present(state, detail=queued.error or "no reason was given", cause=cause)
    if state is SliceState.PREEMPTED:
        return _suspended(queued, node)
    if node and NODE_STATES.get(node.state) is SliceState.PREEMPTED:
        return _node(node)  # its queued resource follows a little later
    if state is SliceState.READY:
        if node is None:
            return Unknown("the queued resource is ACTIVE, but its node is not found")
        return _node(node)
    return Present(state, detail=queued.state)


def _suspended(queued: QueuedSeen, node: NodeSeen | None) -> Present:
    """By the service it is a preemption; so is what has left a preempted node behind, whoever suspended it."""
    detail = f"the queued resource is {queued.state}"
    lost = node is not None and NODE_STATES.get(node.state) is SliceState.PREEMPTED
    if queued.initiator == "USER" and not lost:
        return Present(SliceState.STOPPED, detail=f"{detail}, by a person")
    return Present(SliceState.PREEMPTED, detail=detail)


def _node(node: NodeSeen) -> Present | Unknown:
    state = NODE_STATES.get(node.state)
    if state is None:
        return Unknown(f"the node is in state {node.state}")
    if state is SliceState.READY and not node.endpoints:
        return Present(SliceState.CREATING, detail="READY, but without addresses")
    if state is SliceState.READY:
        return Present(state, node.endpoints, node.detail)
    return Present(state, node.endpoints, f"the node is {node.state}")
