"""The model of the emulated Cloud TPU: its tables, its timers and its orders to the hosts.

`nodes.py` and `queue.py` carry out requests, `interruptions.py` the cloud's own actions. The model has no I/O and no
clock: `clock` gives the time, `advance` makes the changes that are due, and orders to the hosts wait in a list for
`driver.py`. Every caller holds `lock`.
"""

import copy
import heapq
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from tpujob.domain.hardware import accelerators
from tpujob.emulator.storage.faults import Billed
from tpujob.emulator.tpu.errors import Faults
from tpujob.emulator.tpu.records import ApiError, Effect, Latencies, Node, Operation, Queued

# The finite stock of physical hosts in each zone, with names such as `us-central2-b-h003` ----------------------------


HOSTS_PER_GENERATION = 64  #: in each zone that has the generation: enough for a v4-512


@dataclass(slots=True)
class PhysicalHost:
    name: str
    generation: str
    used_by: str = ""  #: full name of a node
    fault: str = ""  #: the TPUJOB_FAULT of programs that start on this host


class HostStock:
    """The hosts of all zones, the nodes that occupy them, and the faults of bad ones."""

    def __init__(self, per_generation: int) -> None:
        self.hosts: dict[str, dict[str, PhysicalHost]] = {}  #: by zone, then by name
        #: types that a zone offers besides those of the table, by zone
        self.opened: dict[str, list[str]] = {}
        for generation in accelerators.GENERATIONS:
            for zone in accelerators.zones(generation):
                self._add(zone, generation, per_generation)

    def open(self, zone: str, type: str) -> None:
        """Let a zone, old or new, offer that type, with hosts of its generation. Raise BadSpec for an invalid type."""
        accelerator = accelerators.find(type)
        if accelerator.type not in self.types(zone):
            self.opened.setdefault(zone, []).append(accelerator.type)
        hosts = self.hosts.get(zone, {})
        if not any(host.generation == accelerator.generation for host in hosts.values()):
            self._add(zone, accelerator.generation, HOSTS_PER_GENERATION)

    def types(self, zone: str) -> list[str]:
        """Return the types that the zone offers."""
        usual = [type for type in accelerators.ALL if zone in accelerators.zones(type)]
        return usual + self.opened.get(zone, [])

    def _add(self, zone: str, generation: str, count: int) -> None:
        zone_hosts = self.hosts.setdefault(zone, {})
        for number in range(len(zone_hosts), len(zone_hosts) + count):
            name = f"{zone}-h{number:03d}"
            zone_hosts[name] = PhysicalHost(name, generation)

    def find(self, name: str) -> PhysicalHost | None:
        return self.hosts.get(name.rpartition("-h")[0], {}).get(name)

    def take(self, zone: str, type: str, node: str) -> tuple[str, ...]:
        """Occupy the free hosts with the lowest numbers; none if there are too few. A bad host with a low number is the
        first to be taken again: a caller who needs other hardware must take it before giving the bad host back."""
        if not self.room_for(zone, [type]):
            return ()
        taken = self._free(zone, type)[: accelerators.find(type).hosts]
        for host in taken:
            host.used_by = node
        return tuple(host.name for host in taken)

    def room_for(self, zone: str, types: list[str]) -> bool:
        """Return whether slices of all these types (one generation) fit at once."""
        needed = sum(accelerators.find(type).hosts for type in types)
        return len(self._free(zone, types[0])) >= needed

    def _free(self, zone: str, type: str) -> list[PhysicalHost]:
        generation, hosts = accelerators.find(type).generation, self.hosts[zone].values()
        return [host for host in hosts if host.generation == generation and not host.used_by]

    def give_back(self, node: Node) -> None:
        for name in node.physical:
            host = self.find(name)
            if host and host.used_by == node.name:  # else it was given back before
                host.used_by = ""

    def bad(self) -> list[PhysicalHost]:
        return [host for hosts in self.hosts.values() for host in hosts.values() if host.fault]


# The world -----------------------------------------------------------------------------------------------------------


_MAX_OPERATIONS = 1000
_Record = TypeVar("_Record", Node, Queued)


class World:
    def __init__(
        self,
        clock: Callable[[], float],
        latencies: Latencies | None = None,
        *,
        hosts_per_generation: int = HOSTS_PER_GENERATION,
        page_size: int = 1000,
        host_env: Mapping[str, str] | None = None,
        faults: Faults | None = None,
        billed: Billed | None = None,
    ) -> None:
        """`billed`: the counter of the emulated storage's billed requests."""
        self.lock = threading.Condition()  #: notified when a timer or an effect is added
        self.clock = clock
        self.latencies = latencies or Latencies()
        self.page_size = page_size  #: maximal length of one page of a list
        self.host_env = dict(host_env or {})  #: variables of every host
        self.image = "default"  #: image of hosts that come up from now on
        self.cut = False  #: whether hosts that come up from now on cannot reach each other
        self.stock = HostStock(hosts_per_generation)
        self.named: set[str] = set()  #: resources besides every project's defaults: `networks/lab`
        self.faults, self.billed = faults or Faults(), billed or Billed()
        self.calls: Counter[str] = Counter()  #: number of calls of this API, by method
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
        self.lock.notify_all()

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
        self.lock.notify_all()

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

    def remove(self, record: Node | Queued) -> None:
        """Remove a record from the tables; list calls that lag still show it for a while."""
        record.removed_at = self.clock()
        if isinstance(record, Node):
            del self.nodes[record.name]
        else:
            del self.queued[record.name]
        if self.latencies.list_lag > 0:
            self._removed.append(record)

    def list_nodes(self, project: str, zone: str) -> list[Node]:
        """Return the nodes as a list call shows them, `list_lag` seconds late. Zone `-` means all zones."""
        return self._listed(self.nodes.values(), Node, project, zone)

    def list_queued(self, project: str, zone: str) -> list[Queued]:
        return self._listed(self.queued.values(), Queued, project, zone)

    def _listed(
        self, live: Iterable[_Record], kind: type[_Record], project: str, zone: str
    ) -> list[_Record]:
        seen_at = self.clock() - self.latencies.list_lag
        self._removed = [r for r in self._removed if (r.removed_at or 0) > seen_at]
        records = [*live, *(r for r in self._removed if isinstance(r, kind))]
        return sorted(
            (
                r
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


_Item = TypeVar("_Item")


def _get(table: Mapping[str, _Item], name: str) -> _Item:
    item = table.get(name)
    if item is None:
        raise not_found(name)
    return item


def not_found(name: str) -> ApiError:
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found")
