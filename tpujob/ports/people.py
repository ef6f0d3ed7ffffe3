"""What is kept of machines and people beside the jobs: suspicions, members, secrets, messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpujob.domain.members import Member
from tpujob.domain.model import Suspect
from tpujob.domain.notifications.model import Message, ReadPosition, Receipt

# Reputation ----------------------------------------------------------------------------------------------------------


class Reputation(Protocol):
    """Keeps which machines are suspected of being bad, or pinned by a person."""

    def accuse(
        self,
        physicals: Sequence[str],
        *,
        zone: str,
        weight: float,
        reason: str,
        op_id: str,
        at: float,
        owner: str,
    ) -> None:
        """For a job of `owner`: add `weight` to the score of each of these machines, faded to `at` first
        (`domain/failures/host_reputation.py`), and keep the reason. Once for each `op_id`: a repeat changes nothing."""
        ...

    def suspects(self) -> list[Suspect]:
        """Every machine that has a score or is pinned, the highest score first."""
        ...

    def put(self, suspect: Suspect) -> None:
        """Replace the record of that machine."""
        ...

    def remove(self, physical: str) -> None:
        """Forget score, pin and reasons. A repeat of an old accusation does not bring them back. Absent is success."""
        ...


# Members -------------------------------------------------------------------------------------------------------------


class Members(Protocol):
    """Keeps who may use the backend."""

    def find(self, name: str) -> Member | None: ...

    def with_id(self, id: str) -> Member | None:
        """The member who came as that principal."""
        ...

    def all(self) -> list[Member]:
        """Return them by name."""
        ...

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        """Read the member of that name, write what `plan` makes of it (None: no member), whole or not at all, and
        return it. `plan` is pure: it is called again when another write came first."""
        ...


# Secrets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """That there is one. Its value is asked for alone, when a program starts."""

    name: str
    set_at: float


class Secrets(Protocol):
    """Keeps values by owner (`Principal.id`) and name; nothing else of the backend does. Names are checked
    (`domain/secrets.py`). Raises Transient, Refused, StoreError."""

    def put(self, owner: str, name: str, value: str) -> None:
        """Set the value. A read at the same time gets the old value or the new one, whole."""
        ...

    def get(self, owner: str, name: str) -> str:
        """Raises NotFound."""
        ...

    def list(self, owner: str) -> list[KeptSecret]:
        """By name. In the cloud, what was set a moment ago by another process may be missing."""
        ...

    def remove(self, owner: str, name: str) -> None:
        """Absent is success."""
        ...


# Notifications --------------------------------------------------------------------------------------------------------


class Outbox(Protocol):
    """Keeps messages and how far events were read. Holds no rules: it compares a version and writes."""

    def position(self) -> ReadPosition | None:
        """Return how far the events of all jobs were read; None: they never were."""
        ...

    def add(self, messages: Sequence[Message], position: ReadPosition | None = None) -> None:
        """Store each message, unless one of its id is stored; then the position, unless a later one is. The first
        `since` stays. Safe to repeat, and from two backends at once."""
        ...

    def due(self, now: float, limit: int) -> list[Message]:
        """Return the messages whose `due` has come, the longest overdue first."""
        ...

    def update(self, messages: Sequence[Message]) -> list[Message] | None:
        """Write each as the next version of the one that was read, all or none. None: another caller has written one
        of them first, or has removed it."""
        ...

    def messages(self, *, channel: str = "", limit: int) -> list[Message]:
        """Return messages of one channel or all, newest first."""
        ...

    def forget(self, now: float, limit: int) -> None:
        """Remove messages that are kept no longer (`Message.until`), at most so many."""
        ...


class Sink(Protocol):
    """Delivers messages to one channel."""

    def send(self, message: Message, *, timeout: float) -> Receipt:
        """Try it once. Never raises, and returns within `timeout`. The receiver recognises a repeat by the message's
        id."""
        ...
