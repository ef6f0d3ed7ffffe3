"""The faults in force: stockouts, quotas, and misbehaviour that is reported of Google's service. Plain state without a
clock. Failing calls are in `tpu/served_world.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tpujob.domain.hardware import accelerators

#: Misbehaviour that is reported of the service, but not constant; off unless switched on. By name: what happens.
API_BUGS: Mapping[str, str] = MappingProxyType(
    {
        # reported by axlearn, `tpu.py`: "throws 409 even for resources that were just created"
        "late-conflict": "creating a queued resource takes effect and answers ALREADY_EXISTS",
        # inferred (live: create-operation): the same, as the result of the operation
        "late-conflict-operation": "creating a queued resource takes effect, and its operation ends in ALREADY_EXISTS",
        # inferred (live: marks-echoed): no document says whether a queued resource repeats the labels of its nodes
        "no-labels": "answers leave out the labels of nodes",
        # reported by axlearn, `tpu.py`, citing Google; that it stays DELETING is inferred (live: lost-node)
        "wedge": "a queued resource whose deletion is forced while it is SUSPENDING stays DELETING",
    }
)


#: the word for a quota in the names of metrics
_IN_METRICS = MappingProxyType({"spot": "Preemptible", "on-demand": "", "reserved": "Reserved"})


@dataclass(frozen=True, slots=True)
class Stockout:
    zone: str
    generation: str  #: empty: all generations
    until: float | None  #: None: until a command ends it
    fail: bool  #: a queued resource fails at once, instead of waiting in the queue


@dataclass(frozen=True, slots=True)
class Quota:
    zone: str
    generation: str
    pricing: str  #: of those that share it, `Pricing.quota`
    limit: int  #: in the unit of the type's name: cores, or chips for v5e and v6e

    @property
    def metric(self) -> str:
        family = accelerators.GENERATIONS[self.generation].quota_name
        return f"TPU{family}{_IN_METRICS[self.pricing]}PodPerProjectPerZoneForTPUAPI"

    def text(self) -> str:
        return f"Quota '{self.metric}' exhausted. Limit {self.limit} in zone {self.zone}"


@dataclass(slots=True)
class Faults:
    stockouts: list[Stockout] = field(default_factory=list[Stockout])
    quotas: dict[tuple[str, str, str], Quota] = field(
        default_factory=dict[tuple[str, str, str], Quota]
    )
    api_bugs: set[str] = field(default_factory=set[str])  #: the names in API_BUGS that are on
    #: seconds after which the cloud suspends a queued resource that became ACTIVE; 0: never
    max_run_s: float = 0.0
    #: zones that lists leave out and report as unreachable
    unreachable: set[str] = field(default_factory=set[str])

    def stockout(self, zone: str, generation: str, now: float) -> Stockout | None:
        """Return the stockout in force there, if any."""
        self.stockouts = [s for s in self.stockouts if s.until is None or s.until > now]
        for stockout in self.stockouts:
            if stockout.zone == zone and stockout.generation in ("", generation):
                return stockout
        return None


def generation_of(type: str) -> str:
    """Return `v4` for `v4` and `v4-16`, `v5e` for `v5litepod`. Raise BadSpec for an unknown type."""
    for generation in accelerators.GENERATIONS.values():
        if type in (generation.name, generation.prefix):
            return generation.name
    named = accelerators.generation(type)
    return named.name if named else accelerators.find(type).generation


def quota_units(type: str) -> int:
    """Return the quota that one slice of that type uses."""
    return int(accelerators.find(type).type.rpartition("-")[2])


def no_capacity(zone: str) -> str:
    return (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where '
        f"Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)"
    )
