"""The finite stock of physical hosts in each zone, below the slices. Names look like `us-central2-b-h003`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpujob.domain.hardware import accelerators

HOSTS_PER_GENERATION = 64  #: in each zone that has the generation: enough for a v4-512


@dataclass(slots=True)
class PhysicalHost:
    name: str
    generation: str
    used_by: str = ""  #: full name of a node
    fault: str = ""  #: the TPUJOB_FAULT of programs that start here


@dataclass(slots=True)
class HostStock:
    """The hosts, the nodes that occupy them, and the faults of bad ones."""

    hosts: dict[str, dict[str, PhysicalHost]] = field(
        default_factory=dict[str, dict[str, PhysicalHost]]
    )  #: by zone, then by name
    #: types that a zone offers besides those of the table, by zone
    opened: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _taken: dict[str, list[PhysicalHost]] = field(default_factory=dict[str, list[PhysicalHost]])

    @staticmethod
    def of_all_zones(per_generation: int = HOSTS_PER_GENERATION) -> HostStock:
        stock = HostStock()
        for generation in accelerators.GENERATIONS:
            for zone in accelerators.zones(generation):
                stock._add(zone, generation, per_generation)
        return stock

    def open(self, zone: str, type: str, hosts: int = HOSTS_PER_GENERATION) -> None:
        """The zone, which may be a new one, offers that type from now on, and has hosts of its generation. Raises
        BadSpec for what can be no type."""
        found = accelerators.find(type)
        if found.type not in self.types(zone):
            self.opened.setdefault(zone, []).append(found.type)
        there = self.hosts.get(zone, {})
        if not any(host.generation == found.generation for host in there.values()):
            self._add(zone, found.generation, hosts)

    def types(self, zone: str) -> list[str]:
        """What the zone offers."""
        usual = [type for type in accelerators.ALL if zone in accelerators.zones(type)]
        return usual + self.opened.get(zone, [])

    def _add(self, zone: str, generation: str, hosts: int) -> None:
        there = self.hosts.setdefault(zone, {})
        for number in range(len(there), len(there) + hosts):
            name = f"{zone}-h{number:03d}"
            there[name] = PhysicalHost(name, generation)

    def find(self, name: str) -> PhysicalHost | None:
        return self.hosts.get(name.rpartition("-h")[0], {}).get(name)

    def take(self, zone: str, type: str, node: str) -> tuple[str, ...]:
        """Occupy the free hosts with the lowest numbers; nothing if there are too few. Faults play no role: a bad host
        with a low number is the first to be handed out again, so a caller who wants other hardware must ask before
        giving it back."""
        wanted = accelerators.find(type)
        free = [
            host
            for host in self.hosts[zone].values()
            if host.generation == wanted.generation and not host.used_by
        ]
        if len(free) < wanted.hosts:
            return ()
        for host in free[: wanted.hosts]:
            host.used_by = node
        self._taken[node] = free[: wanted.hosts]
        return tuple(host.name for host in free[: wanted.hosts])

    def room_for(self, zone: str, types: list[str]) -> bool:
        """Whether slices of all these types (one generation) fit at once."""
        wanted = sum(accelerators.find(type).hosts for type in types)
        generation = accelerators.find(types[0]).generation
        free = sum(
            host.generation == generation and not host.used_by for host in self.hosts[zone].values()
        )
        return free >= wanted

    def give_back(self, node: str) -> None:
        for host in self._taken.pop(node, ()):
            host.used_by = ""

    def bad(self) -> list[PhysicalHost]:
        return [host for there in self.hosts.values() for host in there.values() if host.fault]
