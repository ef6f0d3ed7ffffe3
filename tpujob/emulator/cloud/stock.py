"""The finite stock of physical hosts in each zone, with names such as `us-central2-b-h003`, and the types that zones
offer."""

from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter

from tpujob.domain.hardware import accelerators
from tpujob.emulator.cloud.records import Node

HOSTS_PER_GENERATION = 64  #: in each zone that has the generation: enough for a v4-512


@dataclass(slots=True)
class PhysicalHost:
    name: str
    generation: str
    rank: int  #: of free hosts, the one with the lowest is taken first
    used_by: str = ""  #: full name of a node
    fault: str = ""  #: the TPUJOB_FAULT of programs that start on this host


class HostStock:
    """The hosts of all zones, the nodes that occupy them, and the faults of bad ones."""

    def __init__(
        self,
        per_generation: int = HOSTS_PER_GENERATION,
        *,
        only: Collection[str] | None = None,
        reuse: bool = False,
    ) -> None:
        """`only`: these zones; None: all. `reuse`: hosts that were given back last are taken first; else those
        with the lowest numbers. How Google chooses is not known."""
        self._per_generation, self._reuse, self._lowest = per_generation, reuse, 0
        self.hosts: dict[str, dict[str, PhysicalHost]] = {}  #: by zone, then by name
        #: types that a zone offers besides those of the table, by zone
        self.opened: dict[str, list[str]] = {}
        for generation in accelerators.GENERATIONS:
            for zone in accelerators.zones(generation):
                if only is None or zone in only:
                    self._add(zone, generation, per_generation)

    def open(self, zone: str, type: str) -> None:
        """Let a zone, old or new, offer that type, with hosts of its generation. Raise BadSpec for an invalid type."""
        accelerator = accelerators.find(type)
        if accelerator.type not in self.types(zone):
            self.opened.setdefault(zone, []).append(accelerator.type)
        hosts = self.hosts.get(zone, {})
        if not any(host.generation == accelerator.generation for host in hosts.values()):
            self._add(zone, accelerator.generation, self._per_generation)

    def types(self, zone: str) -> list[str]:
        """Return the types that the zone offers."""
        usual = [type for type in accelerators.ALL if zone in accelerators.zones(type)]
        return usual + self.opened.get(zone, [])

    def _add(self, zone: str, generation: str, count: int) -> None:
        zone_hosts = self.hosts.setdefault(zone, {})
        for number in range(len(zone_hosts), len(zone_hosts) + count):
            name = f"{zone}-h{number:03d}"
            zone_hosts[name] = PhysicalHost(name, generation, rank=number)

    def find(self, name: str) -> PhysicalHost | None:
        return self.hosts.get(name.rpartition("-h")[0], {}).get(name)

    def take(self, zone: str, type: str, node: str) -> tuple[str, ...]:
        """Occupy free hosts; none if there are too few. A bad host that was given back is among the first to be taken
        again: a caller who needs other hardware must take it before giving the bad host back."""
        if not self.room_for(zone, [type]):
            return ()
        taken = self.free(zone, accelerators.find(type).generation)[: accelerators.find(type).hosts]
        for host in taken:
            host.used_by = node
        return tuple(host.name for host in taken)

    def room_for(self, zone: str, types: list[str]) -> bool:
        """Return whether slices of all these types (one generation) fit at once."""
        needed = sum(accelerators.find(type).hosts for type in types)
        return len(self.free(zone, accelerators.find(types[0]).generation)) >= needed

    def free(self, zone: str, generation: str) -> list[PhysicalHost]:
        """Return the free hosts in the order in which they are taken."""
        hosts = self.hosts[zone].values()
        free = [host for host in hosts if host.generation == generation and not host.used_by]
        return sorted(free, key=attrgetter("rank"))

    def give_back(self, node: Node) -> None:
        for name in reversed(node.physical):
            host = self.find(name)
            if host and host.used_by == node.name:  # else it was given back before
                host.used_by = ""
                if self._reuse:
                    self._lowest -= 1
                    host.rank = self._lowest

    def bad(self) -> list[PhysicalHost]:
        return [host for hosts in self.hosts.values() for host in hosts.values() if host.fault]
