"""The hosts of the emulated cloud, in their own process: every TPU VM host is an SSH server, a metadata server and a
home folder on its own loopback address. `python -m tpujob.emulator.farm` runs the farm. The emulated cloud
reaches it through `driver.FarmClient`; the request for a slice that it sends, and the farm's answer, are here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host of a requested slice."""

    index: int
    physical: str = ""  #: name of the physical host
    chips: int = 1
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class SliceRequest:
    name: str
    zone: str
    type: str
    hosts: tuple[HostSpec, ...]
    group: str = ""  #: name that slices have in common which may run one program together
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])  #: variables of every host
    image: str = "default"  #: name of the image, the programs on its hosts
    cut: bool = False  #: whether its hosts cannot reach each other


class HostUp(NamedTuple):
    """A host that answers."""

    address: str
    guests: Mapping[str, str]  #: its guest attributes, by `namespace/key`
