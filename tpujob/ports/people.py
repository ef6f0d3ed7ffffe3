"""The stores of machines and people beside the jobs: suspects, members, secrets, messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpujob.domain.members import Member
from tpujob.domain.model import Accusation, Suspect
from tpujob.domain.notifications.model import Message, ReadPosition, Receipt

# Reputation ----------------------------------------------------------------------------------------------------------


class Reputation(Protocol):
    """Keeps the machines that are accused, or pinned by a person."""

    def accuse(self, physicals: Sequence[str], accusation: Accusation) -> None:
        """Keep what an attempt holds against each machine, in place of what it held before; delete both if it is
        refuted. A repeat with the same `op_id` changes nothing."""
        ...

    def suspects(self) -> list[Suspect]:
        """Return every machine that is accused or pinned, the highest score first."""
        ...

    def put(self, suspect: Suspect) -> None:
        """Replace the record of the machine."""
        ...

    def remove(self, physical: str) -> None:
        """Delete pin and accusations; a repeat of an old accusation does not restore them. Absent is success."""
        ...


# Members -------------------------------------------------------------------------------------------------------------


class Members(Protocol):
    """Keeps the people who may use the backend, and those who have left."""

    def find(self, name: str) -> Member | None: ...

    def with_id(self, id: str) -> Member | None:
        """Return the member with the id of a principal."""
        ...

    def all(self) -> list[Member]:
        """Return all members, by name."""
        ...

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        """Replace the member of that name by the result of `plan` (None: no member), atomically, and return the result.
        `plan` is pure: after a concurrent write it is called again."""
        ...


# Secrets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """A secret without its value, which is read only when a program starts."""

    name: str
    set_at: float


class Secrets(Protocol):
    """Keeps the values of secrets by owner (`Principal.id`) and name; no other part of the backend keeps values.
    Callers check names (`domain/secrets.py`). Methods raise Transient, Refused, StoreError."""

    def put(self, owner: str, name: str, value: str) -> None:
        """Set the value atomically."""
        ...

    def get(self, owner: str, name: str) -> str:
        """Return the value. Raise NotFound."""
        ...

    def list(self, owner: str) -> list[KeptSecret]:
        """Return the secrets by name. In the cloud, a secret that another process has just set may be missing."""
        ...

    def remove(self, owner: str, name: str) -> None:
        """Remove the secret. Absent is success."""
        ...


# Notifications --------------------------------------------------------------------------------------------------------


class Outbox(Protocol):
    """Keeps messages and the position up to which events were read. Has no rules: compares a version and writes."""

    def position(self) -> ReadPosition | None:
        """Return the position up to which the events of all jobs were read; None: never read."""
        ...

    def add(self, messages: Sequence[Message], position: ReadPosition | None = None) -> None:
        """Store the messages with new ids, then the position if it is later than the stored one. Keep the first
        `since`. Safe to repeat, and from two backends at once."""
        ...

    def due(self, now: float, limit: int) -> list[Message]:
        """Return the messages whose `due` has passed, the longest overdue first."""
        ...

    def update(self, messages: Sequence[Message]) -> list[Message] | None:
        """Write the next version of each message, all or none. None: another caller has changed one of them first."""
        ...

    def messages(self, *, channel: str = "", limit: int) -> list[Message]:
        """Return messages of one channel or all, newest first."""
        ...

    def forget(self, now: float, limit: int) -> None:
        """Remove at most `limit` messages whose `until` has passed."""
        ...


class Sink(Protocol):
    """Delivers messages to one channel."""

    def send(self, message: Message, *, timeout: float) -> Receipt:
        """Try once to send the message. Never raise. The receiver recognises a repeat by the message's id."""
        ...
