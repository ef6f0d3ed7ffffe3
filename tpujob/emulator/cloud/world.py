"""The tables of the model, its timers, its lists and its orders to the hosts.

`nodes.py` and `queue.py` carry out requests, `interruptions.py` the cloud's own actions. `clock` gives the time,
`advance` makes the changes that are due, and orders to the hosts wait in a list for whoever has the hosts.
"""

import copy
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import TypeVar, cast

from tpujob.emulator.cloud.errors import Faults
from tpujob.emulator.cloud.records import ApiError, Effect, Latencies, Node, Operation, Queued
from tpujob.emulator.cloud.states import (
    NODE_MOVES,
    QUEUED_MOVES,
    NodeState,
    QueuedState,
)
from tpujob.emulator.cloud.stock import HostStock

_MAX_OPERATIONS = 1000
_Record = TypeVar("_Record", Node, Queued)


class World:
    def __init__(
        self,
        clock: Callable[[], float],
        latencies: Latencies | None = None,
        *,
        stock: HostStock | None = None,
        host_env: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = clock
        self.latencies = latencies or Latencies()
        self.host_env = dict(host_env or {})  #: variables of every host
        self.image = "default"  #: image of hosts that come up from now on
        self.cut = False  #: whether hosts that come up from now on cannot reach each other
        self.stock = stock or HostStock()
        self.named: set[str] = set()  #: resources besides every project's defaults: `networks/lab`
        self.reservation_ends: dict[str, float] = {}  #: by name, of calendar reservations
        self.faults = Faults()
        self.nodes: dict[str, Node] = {}  #: by full name, like the next two
        self.queued: dict[str, Queued] = {}
        self.operations: dict[str, Operation] = {}
        self.requests: dict[str, str] = {}  #: operation by request id
        self.history: deque[tuple[float, str]] = deque(maxlen=50)
        self._waiting: list[Callable[[], None]] = []
        self._removed: list[Node | Queued] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._effects: list[Effect] = []

    # Time

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` in `delay` seconds. The action must check whether it still applies."""
        heapq.heappush(self._timers, (self.clock() + delay, self.number(), action))
        self.has_work()

    def has_work(self) -> None:
        """Called when a timer or an order to the hosts was added. For whoever calls `advance` and `take_effects`."""

    def advance(self) -> float | None:
        """Call the actions that are due; return when the next timer is due."""
        while self._timers and self._timers[0][0] <= self.clock():
            heapq.heappop(self._timers)[2]()
        return self._timers[0][0] if self._timers else None

    def when_room(self, action: Callable[[], None]) -> None:
        """Call `action` once, the next time that there may be more room somewhere."""
        self._waiting.append(action)

    def room_changed(self) -> None:
        """Let requests that wait for room check again, the oldest first."""
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    # Hosts

    def ask_hosts(self, effect: Effect) -> None:
        self._effects.append(effect)
        self.has_work()

    def take_effects(self) -> list[Effect]:
        """Return orders to the hosts, oldest first; each is returned once."""
        taken, self._effects = self._effects, []
        return taken

    # Records

    def number(self) -> int:
        return next(self._numbers)

    def record(self, text: str) -> None:
        """Add a line to the history that `status` shows; a repetition of the last line replaces it."""
        if self.history and self.history[-1][1] == text:
            self.history.pop()
        self.history.append((self.clock(), text))

    def get_node(self, name: str) -> Node:
        return _get(self.nodes, name)

    def get_queued(self, name: str) -> Queued:
        return _get(self.queued, name)

    def move(self, node: Node, state: NodeState) -> None:
        """Change the state of a node. Lists that lag show for a while what it was."""
        _check_move(node.name, node.state, state, NODE_MOVES)
        if self.latencies.list_lag > 0:
            node.past.append((self.clock(), copy.copy(node)))
        node.state = state

    def move_queued(self, queued: Queued, state: QueuedState) -> None:
        """Change the state of a queued resource, as `move` does of a node."""
        _check_move(queued.name, queued.state, state, QUEUED_MOVES)
        if self.latencies.list_lag > 0:
            queued.past.append((self.clock(), copy.copy(queued)))
        queued.state = state

    def remove(self, record: Node | Queued) -> None:
        """Remove a record from the tables; list calls that lag still show it for a while."""
        record.removed_at = self.clock()
        if isinstance(record, Node):
            del self.nodes[record.name]
        else:
            del self.queued[record.name]
        if self.latencies.list_lag > 0:
            self._removed.append(record)

    def list_nodes(self, project: str, zone: str, lag: float | None = None) -> list[Node]:
        """Return the nodes as they were `lag` seconds ago, `list_lag` at most; None: `list_lag`. Zone `-` means all."""
        return self._listed(self.nodes.values(), Node, project, zone, lag)

    def list_queued(self, project: str, zone: str, lag: float | None = None) -> list[Queued]:
        return self._listed(self.queued.values(), Queued, project, zone, lag)

    def _listed(
        self,
        live: Iterable[_Record],
        kind: type[_Record],
        project: str,
        zone: str,
        lag: float | None,
    ) -> list[_Record]:
        longest = self.latencies.list_lag
        self._removed = [r for r in self._removed if (r.removed_at or 0) > self.clock() - longest]
        seen_at = self.clock() - (longest if lag is None else lag)
        removed = (r for r in self._removed if (r.removed_at or 0) > seen_at)
        records = [*live, *(r for r in removed if isinstance(r, kind))]
        return sorted(
            (
                _as_of(r, seen_at)
                for r in records
                if r.project == project
                and zone in ("-", r.zone)
                and r.zone not in self.faults.unreachable
                and r.created_at <= seen_at
            ),
            key=attrgetter("zone", "id"),
        )

    # Operations

    def start_operation(self, verb: str, target: str, api: str, request_id: str = "") -> Operation:
        parent = target.rsplit("/", 2)[0]
        now = self.clock()
        name = f"{parent}/operations/operation-{int(now * 1000)}-{self.number():08x}"
        operation = self.operations[name] = Operation(name, verb, target, api, now)
        if request_id:
            self.requests[request_id] = name
        done = [o.name for o in self.operations.values() if o.done]
        for old in done[:-_MAX_OPERATIONS]:
            del self.operations[old]
        return operation

    def finish(
        self, name: str, *, error: ApiError | None = None, response: Node | Queued | None = None
    ) -> None:
        """Complete an operation unless it is complete; the response is a copy of the record as it is now."""
        running = self.operations.get(name)
        if running is None or running.done:
            return
        running.ended_at = self.clock()
        running.error = error
        running.response = copy.copy(response)

    def repeated(self, request_id: str) -> Operation | None:
        """Return the operation that an earlier call with the same request id started."""
        return self.operations.get(self.requests.get(request_id, "")) if request_id else None

    def get_operation(self, name: str) -> Operation:
        return _get(self.operations, name)


def _check_move(name: str, old: str, new: str, moves: Mapping[str, Collection[str]]) -> None:
    if new not in moves[old]:
        raise RuntimeError(f"{name} is {old}, which does not become {new}")


def _as_of(record: _Record, at: float) -> _Record:
    """Return the record as it was at that time."""
    past = cast(Iterable[tuple[float, _Record]], record.past)
    return next((before for until, before in past if until > at), record)


_Item = TypeVar("_Item")


def _get(table: Mapping[str, _Item], name: str) -> _Item:
    item = table.get(name)
    if item is None:
        raise not_found(name)
    return item


def not_found(name: str) -> ApiError:
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found")
