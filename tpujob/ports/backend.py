"""All that a backend touches of the world, as one value; and the clock."""

from dataclasses import dataclass
from typing import Protocol

from tpujob.ports.hardware import Hosts, Slices
from tpujob.ports.people import Reputation, Secrets
from tpujob.ports.storage import Blobs, Copies
from tpujob.ports.store import Store


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Who gets it uses what it needs of it."""

    store: Store
    slices: Slices
    hosts: Hosts
    blobs: Blobs
    clock: Clock
    copies: Copies
    secrets: Secrets
    reputation: Reputation
