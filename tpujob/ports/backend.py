"""All ports of a backend as one value, and the clock."""

from dataclasses import dataclass
from typing import Protocol

from tpujob.ports.hardware import Hosts
from tpujob.ports.people import Reputation, Secrets
from tpujob.ports.routing import Providers
from tpujob.ports.storage import Blobs, Copies
from tpujob.ports.store import Store


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch, UTC."""
        ...

    def steady(self) -> float:
        """Return the seconds since the machine was booted, also those for which it slept: this clock is never set."""
        ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports of a backend."""

    store: Store
    slices: Providers
    hosts: Hosts
    blobs: Blobs
    clock: Clock
    copies: Copies
    secrets: Secrets
    reputation: Reputation
