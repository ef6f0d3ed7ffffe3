"""What the emulated Cloud TPU holds: nodes, queued resources, operations, and what it asks of its hosts. Data only.

The words are the API's own (`CREATING`, `SUSPENDED`), as these records are what the API shows. Requests arrive here as
plain values, with the original message kept unread in `body`, so nothing below the gRPC services knows protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Pricing = Literal["spot", "on-demand", "reserved"]


class ApiError(Exception):
    """What a call is refused with. `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


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


class Change(StrEnum):
    """What a queued resource is told of its nodes."""

    READY = "ready"
    FAILED = "failed"
    LOST = "lost"  #: preempted, or its hosts are gone
    LEAVING = "leaving"  #: its deletion has begun
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What was asked for."""

    type: str
    runtime_version: str
    pricing: Pricing
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    external_ips: bool
    body: bytes  #: the node as the caller sent it
    autocheckpoint: bool = False  #: only v2alpha1 has a word for it
    multislice: bool = False  #: one of several nodes that were asked for as one


@dataclass(slots=True)
class Node:
    project: str
    zone: str
    id: str
    spec: NodeSpec
    created_at: float
    number: int  #: unique and never reused
    queued: str = ""  #: full name of the queued resource that it belongs to
    tell: Callable[[Change, ApiError | None], None] | None = None  #: how that one learns of it
    state: NodeState = NodeState.CREATING
    physical: tuple[str, ...] = ()  #: the hosts of the stock that it occupies, by host number
    addresses: tuple[str, ...] = ()
    guests: tuple[
        Mapping[str, str], ...
    ] = ()  #: guest attributes by host, `namespace/key` to value
    hosts_exist: bool = False  #: the host farm was asked for them and not yet told to remove them
    hosts_coming: bool = False  #: the host farm has not answered yet
    attempts: int = 0  #: times that the host farm failed to bring the hosts up
    farm_name: str = ""  #: what the host farm knows it by, once it was asked
    operation: str = ""  #: the one that the present state's end completes
    preempted_at: float | None = None  #: when a notice that is running ends
    maintenance_until: float = 0.0
    slowed: dict[int, float] = field(default_factory=dict[int, float])
    silent: set[int] = field(
        default_factory=set[int]
    )  #: hosts that are dead, of which the API knows nothing
    unreachable: bool = False  #: the host farm does not answer
    removed_at: float | None = None  #: kept for lists that lag

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.id}"


@dataclass(slots=True)
class Queued:
    project: str
    zone: str
    id: str
    specs: tuple[tuple[str, NodeSpec], ...]  #: node ids and what each is to be
    pricing: Pricing
    created_at: float
    body: bytes  #: the queued resource as the caller sent it
    state: QueuedState = QueuedState.CREATING
    initiator: Literal["", "USER", "SERVICE"] = ""
    error: ApiError | None = None
    operation: str = ""
    removed_at: float | None = None

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/queuedResources/{self.id}"


@dataclass(slots=True)
class Operation:
    name: str
    verb: str
    target: str
    api: str  #: `v2`, `v2alpha1`: decides the types of its metadata and response
    created_at: float
    ended_at: float | None = None
    error: ApiError | None = None
    response: Any = None  #: a copy of the Node or Queued at its end; None: empty
    cancel_requested: bool = False

    @property
    def done(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds that things take. A test makes them short; a drill makes one of them endless."""

    accept: float = 0.2  #: until a queued resource is accepted, and again until it is granted
    create: float = 2.0
    delete: float = 1.0
    suspend: float = 0.5
    stop: float = 1.0
    list_lag: float = 0.0  #: how long lists go on to show the past


# What is asked of the hosts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostWanted:
    index: int
    physical: str
    chips: int
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BringUp:
    node: str  #: full name of the node
    number: int  #: of the node, so that an answer to an earlier one of that name is recognised
    slice: str  #: the name that the host farm knows it by
    zone: str
    type: str
    metadata: Mapping[str, str]
    hosts: tuple[HostWanted, ...]
    env: Mapping[str, str]  #: what every host's environment has


@dataclass(frozen=True, slots=True)
class TakeDown:
    node: str
    number: int
    slice: str


@dataclass(frozen=True, slots=True)
class Disturb:
    """Something happens to the hosts; `what` is the host farm's word for it."""

    slice: str
    what: Literal["preempt", "maintain", "slow", "off", "hang", "oom", "env"]
    how: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SwitchOn:
    """Hosts that were switched off are to answer again."""

    node: str
    number: int
    slice: str


Effect = BringUp | TakeDown | Disturb | SwitchOn
