"""The faults in force: stockouts, quotas, failing calls, and what Google's service does only at times. Plain state, no
clock of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from tpujob.domain.hardware import accelerators
from tpujob.emulator.storage import StorageFaults
from tpujob.emulator.tpu.records import Pricing

#: What the service is reported to do, but not always; off unless switched on. By name: what happens.
API_BUGS: Mapping[str, str] = MappingProxyType(
    {
        # reported by axlearn, `tpu.py`: "throws 409 even for resources that were just created"
        "late-conflict": "creating a queued resource takes effect and answers ALREADY_EXISTS",
        # inferred (live: create-operation): the same, as the result of the operation
        "late-conflict-operation": "creating a queued resource takes effect, and its operation ends in ALREADY_EXISTS",
        # inferred (live: marks-echoed): no document says whether a queued resource repeats the labels of its nodes
        "no-labels": "answers leave out the labels of nodes",
        # reported by axlearn, `tpu.py`, on the word of Google; that it stays DELETING is inferred (live: lost-node)
        "wedge": "a queued resource whose deletion is forced while it is SUSPENDING stays DELETING",
    }
)


@dataclass(frozen=True, slots=True)
class Stockout:
    zone: str
    generation: str  #: empty: all of them
    until: float | None  #: None: until it is ended by command
    fail: bool  #: a queued resource fails at once, instead of waiting in the queue


@dataclass(frozen=True, slots=True)
class Quota:
    zone: str
    generation: str
    pricing: Pricing
    limit: int  #: in the unit of the type's name: cores, or chips for v5e and v6e

    @property
    def metric(self) -> str:
        preemptible = "Preemptible" if self.pricing == "spot" else ""
        reserved = "Reserved" if self.pricing == "reserved" else ""
        family = accelerators.GENERATIONS[self.generation].quota_name
        return f"TPU{family}{preemptible}{reserved}PodPerProjectPerZoneForTPUAPI"

    def text(self) -> str:
        return f"Quota '{self.metric}' exhausted. Limit {self.limit} in zone {self.zone}"


@dataclass(slots=True)
class CallFault:
    """The next `count` calls of a method fail, before or after they took effect."""

    method: str  #: `CreateNode`; `*`: any
    code: str  #: name of a gRPC status; `OK`: only the delay
    count: int
    when: Literal["pre", "post"] = "pre"
    delay_s: float = 0.0  #: how long the call hangs before
    message: str = ""


@dataclass(slots=True)
class Faults:
    stockouts: list[Stockout] = field(default_factory=list[Stockout])
    quotas: dict[tuple[str, str, Pricing], Quota] = field(
        default_factory=dict[tuple[str, str, Pricing], Quota]
    )
    calls: list[CallFault] = field(default_factory=list[CallFault])
    storage: StorageFaults = field(default_factory=StorageFaults)
    api_bugs: set[str] = field(default_factory=set[str])  #: those of API_BUGS that are on
    #: seconds after which the cloud suspends a queued resource that became ACTIVE; 0: never
    max_run_s: float = 0.0
    unreachable: set[str] = field(
        default_factory=set[str]
    )  #: zones that lists leave out, and say so

    def stockout(self, zone: str, generation: str, now: float) -> Stockout | None:
        """The stockout in force there, if any."""
        self.stockouts = [s for s in self.stockouts if s.until is None or s.until > now]
        for one in self.stockouts:
            if one.zone == zone and one.generation in ("", generation):
                return one
        return None

    def quota(self, zone: str, generation: str, pricing: Pricing) -> Quota | None:
        return self.quotas.get((zone, generation, pricing))

    def next_call(self, method: str) -> CallFault | None:
        """The fault for this call, if any; counts it down."""
        for fault in self.calls:
            if fault.method in ("*", method):
                fault.count -= 1
                if fault.count <= 0:
                    self.calls.remove(fault)
                return fault
        return None


def generation_of(type: str) -> str:
    """`v4` for `v4` and `v4-16`, `v5e` for `v5litepod`. Raises BadSpec for an unknown type."""
    for generation in accelerators.GENERATIONS.values():
        if type in (generation.name, generation.prefix):
            return generation.name
    found = accelerators.generation(type)
    return found.name if found else accelerators.find(type).generation


def units(type: str) -> int:
    """How much quota one slice of that type uses."""
    return int(accelerators.find(type).type.rpartition("-")[2])


def no_capacity(zone: str) -> str:
    return (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where '
        f"Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)"
    )
