"""Messages that are to be sent, and the sinks that deliver them."""

from collections.abc import Sequence
from typing import Protocol

from tpujob.domain.notifications.model import Message, ReadPosition, Receipt


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
