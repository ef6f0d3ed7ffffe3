"""The records of the emulated Cloud TPU: nodes, queued resources, operations, and orders to the hosts. Data only.

States are spelled as in the API (`CREATING`, `SUSPENDED`). Requests arrive as plain values; `body` keeps the original
message as bytes, so only the services know protobuf.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from tpujob.emulator.cloud.states import NodeState, QueuedState
from tpujob.emulator.farm import SliceRequest


class ApiError(Exception):
    """The error of a call. `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def invalid(message: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", message)


def id_of(name: str) -> str:
    """Return the last part of a resource's name."""
    return name.rpartition("/")[2]


def check_known(value: object, allowed: Collection[object]) -> None:
    """Raise ApiError for a value that is not in `allowed`."""
    if value not in allowed:
        raise invalid(f"{value!r} is not one of {', '.join(map(str, allowed))}")


class NodeChange(StrEnum):
    """A change of a node that concerns its queued resource."""

    READY = "ready"
    FAILED = "failed"
    LOST = "lost"  #: preempted, or its hosts are gone
    LEAVING = "leaving"  #: its deletion has begun
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The requested properties of a node."""

    type: str
    runtime_version: str
    pricing: str
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    external_ips: bool
    body: bytes  #: the node as the caller sent it
    multislice: bool = False  #: whether the request is for several nodes
    uses: tuple[str, ...] = ()  #: resources that must exist in the project, such as `networks/lab`


@dataclass(slots=True)
class Node:
    project: str
    zone: str
    id: str
    spec: NodeSpec
    created_at: float
    number: int  #: unique and never reused
    queued: str = ""  #: full name of its queued resource
    #: called with each change of the node
    on_change: Callable[[NodeChange, ApiError | None], None] | None = None
    state: NodeState = NodeState.CREATING
    physical: tuple[str, ...] = ()  #: its physical hosts, by host number
    addresses: tuple[str, ...] = ()
    guests: tuple[Mapping[str, str], ...] = ()  #: guest attributes by host, by `namespace/key`
    hosts_exist: bool = False  #: from the order to make them until the farm has removed them
    hosts_coming: bool = False  #: the host farm has not answered yet
    attempts: int = 0  #: how often the host farm failed to bring the hosts up
    farm_name: str = ""  #: its name in the host farm; empty before the first order
    operation: str = ""  #: operation that is done when the present state ends
    preempted_at: float | None = None  #: when the running notice ends
    maintenance_until: float = 0.0
    #: begin and end of the announced maintenance
    upcoming: tuple[float, float] | None = None
    slowed: dict[int, float] = field(default_factory=dict[int, float])
    silent: set[int] = field(default_factory=set[int])  #: dead hosts, while the API says READY
    hung: frozenset[int] = frozenset()  #: hosts with a program that a fault has stopped
    unreachable: bool = False  #: the host farm does not answer
    removed_at: float | None = None  #: time of removal, for lists that lag
    #: copies of it before each move, each until when; for lists that lag
    past: list[tuple[float, "Node"]] = field(default_factory=list[tuple[float, "Node"]])

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.id}"


@dataclass(frozen=True, slots=True)
class NewerFields:
    """Requested fields of a queued resource that the client library's messages lack."""

    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  #: as sent, in JSON
    model: str = ""  #: its `provisioningModel`
    max_run_s: float | None = None
    reservation: str = ""  #: the last part of the name of the reservation that it is bound to

    @property
    def pricing(self) -> str:
        """The name in `PRICINGS` of slices with this model; empty: the other fields tell it."""
        return {"FLEX_START": "flex-start", "RESERVATION_BOUND": "calendar"}.get(self.model, "")


@dataclass(slots=True)
class Queued:
    project: str
    zone: str
    id: str
    specs: tuple[tuple[str, NodeSpec], ...]  #: ids and specs of the nodes
    pricing: str
    created_at: float
    body: bytes  #: the queued resource as the caller sent it
    newer: NewerFields = field(default_factory=NewerFields)
    ends_at: float | None = None  #: when its maximum run duration, or its reservation, ends
    held_until: float = 0.0  #: a fault: it waits in the queue until then, whatever the zone has
    state: QueuedState = QueuedState.CREATING
    initiator: Literal["", "USER", "SERVICE"] = ""
    error: ApiError | None = None
    operation: str = ""
    wedged: bool = False  #: stays DELETING until it is deleted again with the bug off
    removed_at: float | None = None
    past: list[tuple[float, "Queued"]] = field(default_factory=list[tuple[float, "Queued"]])

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

    @property
    def done(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class Latencies:
    """The durations of the cloud's actions, in seconds; `tpujob emulator settings` changes them."""

    accept: float = 0.2  #: until a queued resource is accepted, then again until it is granted
    create: float = 2.0
    delete: float = 1.0
    suspend: float = 0.5
    stop: float = 1.0
    list_lag: float = 0.0  #: how old the answers of list calls are


# Orders to the hosts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BringUp:
    node: Node
    request: SliceRequest


@dataclass(frozen=True, slots=True)
class TakeDown:
    node: Node


@dataclass(frozen=True, slots=True)
class Disturb:
    """A disturbance of hosts; `what` is the host farm's name for it."""

    slice: str
    what: Literal["preempt", "maintain", "slow", "off", "hang", "oom", "env", "cut", "announce"]
    how: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SwitchOn:
    """An order to switch hosts on again."""

    node: Node


Effect = BringUp | TakeDown | Disturb | SwitchOn
