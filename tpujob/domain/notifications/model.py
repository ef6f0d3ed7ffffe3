"""The records of notifications: what happened, the message that reports it, and how far events were read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: seconds for which messages are kept; a notification cannot be sent a second time before that
KEPT = 30 * 86400.0


class NotificationKind(StrEnum):
    """The kind of a notification. Events that tpujob repairs by itself have none."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: by another user than the job's owner
    CANCELLED = "cancelled"
    #: its slice is kept, and billed, until a person decides
    HELD = "held"
    #: for hardware, for longer than the context allows
    WAITING = "waiting"
    #: in a state that should have ended long ago
    STUCK = "stuck"
    BUDGET_WARNED = "budget_warned"
    BUDGET_USED_UP = "budget_used_up"
    #: a slice that no job claims
    LEAK = "leak"
    #: programs are kept off a machine
    HOST_REFUSED = "host_refused"
    TEST = "test"
    #: of a day; only in records of earlier versions
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Notification:
    """One fact to report."""

    #: the same fact has the same key, whichever backend finds it, and however often
    key: str
    kind: NotificationKind
    at: float
    #: one sentence
    text: str
    #: the job's id; empty: it is about no single job
    job: str = ""
    name: str = ""
    user: str = ""
    attempt: int = 0
    cause: str = ""
    zone: str = ""
    #: the line of output that proves the cause
    lines: tuple[str, ...] = ()
    #: of the job, who may read all of this; empty: only admins may
    owner: str = ""
    #: what other users read in place of text and lines; empty: the cause
    public: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A notification for one channel: each try sends it with the same id."""

    id: str
    channel: str
    at: float
    notification: Notification
    #: messages of a burst that this one stands for
    more: int = 0
    #: how often it was tried
    tried: int = 0
    tried_at: float | None = None
    #: of the last try; empty: it was delivered
    error: str = ""
    #: collapsed: another message of the burst stands for it
    state: Literal["waiting", "sent", "failed", "collapsed"] = "waiting"
    #: the next try; None: there is none
    due: float | None = None
    #: the backend that has tried it last, or is trying it
    claimed_by: str = ""
    version: int = 1

    @property
    def until(self) -> float:
        """The time at which the message is removed."""
        return self.at + KEPT


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one try to deliver a message."""

    #: empty: it was delivered
    error: str = ""
    #: each other try would end the same way
    permanent: bool = False
    #: seconds that the receiver asks for
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position up to which the events of all jobs were read."""

    #: of the store
    change: int
    #: when reading began: earlier events are not reported
    since: float
