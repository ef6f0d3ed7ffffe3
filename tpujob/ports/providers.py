"""What a provider of slices brings beside `Slices`: the types of its zones and what its hosts publish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpujob.domain.model import Slice
from tpujob.ports.hardware import Slices


class Catalog(Protocol):
    """The types that zones offer, for plans and advice: no request for a slice consults it."""

    def types(self, zone: str) -> frozenset[str] | None:
        """Return the types that the zone lists, perhaps some hours old; None: they are not known now. A listed type may
        lack capacity or quota. Raise Refused when the zone is not open to the project."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedHost:
    """The name and the keys that a host publishes through the cloud, for the first contact."""

    name: str = ""  #: name of the machine; empty: not published
    host_keys: frozenset[tuple[str, str]] = frozenset()  #: type, and key in base64


class Guests(Protocol):
    """What the cloud reports on the hosts of a slice. Methods raise Transient."""

    def look(self, slice: Slice, timeout: float) -> Sequence[PublishedHost]:
        """Return what each host has published, in order; nothing at all: the project does not allow the call."""
        ...

    def obstacle(self, slice: Slice, timeout: float) -> str:
        """Return why the cloud makes a host refuse our key; empty: no reason is known."""
        ...


@dataclass(frozen=True, slots=True)
class Provider:
    """An API that makes slices, under the name that `Slice.provider` keeps."""

    slices: Slices
    catalog: Catalog
    guests: Guests
    close: Callable[[], object]  #: closes its connections
