"""What is to be told to people, and who tells it."""

from collections.abc import Sequence
from typing import Protocol

from tpujob.domain.notify.model import Channel, Message, Note, Progress, Receipt


class Outbox(Protocol):
    """Keeps what is to be told, and what was. Holds no rules: it compares a version and writes."""

    def progress(self) -> Progress | None:
        """How far all jobs were read for notes; None: nobody has begun."""
        ...

    def note(self, notes: Sequence[tuple[str, Note]], progress: Progress | None = None) -> None:
        """Keep each note for its channel, unless that channel ever had one of that key (for as long as notes are kept);
        after that the progress, unless it has come further. Its first `since` stays. Safe to repeat, and from two
        backends at once."""
        ...

    def open(self, channel: str, limit: int) -> list[Note]:
        """Those of the channel that are not closed, oldest first."""
        ...

    def close(self, channel: str, keys: Sequence[str]) -> None:
        """These are told by a message. Absent ones are no error."""
        ...

    def channel(self, name: str) -> Channel:
        """A new one, of version 0, if it was never written."""
        ...

    def write(self, channel: Channel, message: Message | None = None) -> Channel | None:
        """Write it as the next version of the one that was read and, with it, a new message, whole or not at all.
        Returns it as stored; None: somebody else wrote that version first."""
        ...

    def message(self, id: str) -> Message:
        """Raises NotFound."""
        ...

    def update(self, message: Message) -> Message | None:
        """Write it as the next version of the one that was read. None: somebody else wrote another one first, or it is
        gone."""
        ...

    def due(self, now: float, limit: int) -> list[Message]:
        """Messages whose `due` has come, the longest overdue first."""
        ...

    def messages(self, *, channel: str = "", before: str = "", limit: int) -> list[Message]:
        """Newest first, of one channel or all; those older than the one with the id `before`."""
        ...

    def forget(self, now: float, limit: int) -> int:
        """Remove notes and messages that are kept no longer (`domain/notify/model.py`: KEPT), at most that many of
        each; returns how many were removed."""
        ...


class Sink(Protocol):
    """Delivers messages to one channel."""

    def send(self, message: Message, *, timeout: float) -> Receipt:
        """Try it once. Never raises, and returns within `timeout`. The receiver can tell a repeat by the message's
        id."""
        ...
