"""The request for a slice that the emulated cloud sends to a farm, and the farm's answer. Data only."""

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
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])  #: variables of every host
    image: str = "default"  #: name of the image, the programs on its hosts
    cut: bool = False  #: whether its hosts cannot reach each other


class HostUp(NamedTuple):
    """A host that answers."""

    address: str
    guests: Mapping[str, str]  #: its guest attributes, by `namespace/key`
