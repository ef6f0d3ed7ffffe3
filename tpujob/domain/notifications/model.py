"""The records of notifications: what happened, the message that reports it, and how far events were read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: seconds for which messages are kept; a notification cannot be sent a second time before that
MESSAGE_TTL = 30 * 86400.0


class NotificationKind(StrEnum):
    """The kind of a notification. Events that tpujob repairs by itself have none, but for NONFINITE."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"  #: by another user than the job's owner
    HELD = "held"  #: the job is stopped; its slice is kept, and billed
    WAITING = "waiting"  #: the job has waited for hardware for longer than the context's threshold
    STUCK = "stuck"  #: a state that should be short lasts for longer than the context's threshold
    NONFINITE = "nonfinite"  #: the loss is not finite
    BUDGET_WARNED = "budget_warned"
    BUDGET_USED_UP = "budget_used_up"
    DEADLINE_MISSED = "deadline_missed"
    LEAK = "leak"  #: a slice that no job claims
    HOST_REFUSED = "host_refused"  #: a bad machine, which gets no more programs
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Notification:
    """One fact to report."""

    key: str  #: the same fact has the same key, whichever backend finds it, and however often
    kind: NotificationKind
    at: float
    text: str  #: one sentence
    job: str = ""  #: id of the job; empty: the fact is about no single job
    name: str = ""
    user: str = ""
    attempt: int = 0
    cause: str = ""
    zone: str = ""
    lines: tuple[str, ...] = ()  #: the line of output that proves the cause, if there is one
    owner: str = ""  #: owner of the job, who may read all fields; empty: only admins may
    public: str = ""  #: what other users read in place of text and lines; empty: the cause


@dataclass(frozen=True, slots=True)
class Message:
    """A notification for one channel: each try sends it with the same id."""

    id: str
    channel: str
    at: float
    notification: Notification
    more: int = 0  #: number of other messages of a burst that this one stands for
    tried: int = 0  #: number of tries
    tried_at: float | None = None
    error: str = ""  #: error of the last try; empty: not tried yet, or delivered
    #: collapsed: another message of the burst stands for it
    state: Literal["waiting", "sent", "failed", "collapsed"] = "waiting"
    due: float | None = None  #: time of the next try; None: there is none
    claimed_by: str = ""  #: the backend that has tried it last, or is trying it
    version: int = 1

    @property
    def until(self) -> float:
        """The time at which the message is removed."""
        return self.at + MESSAGE_TTL


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one try to deliver a message."""

    error: str = ""  #: empty: the message was delivered
    permanent: bool = False  #: every further try would fail, too
    #: seconds until the next try, as the receiver asks; 0: it does not ask
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position up to which the events of all jobs were read."""

    change: int  #: number of the store's last change that was read
    since: float  #: time at which reading began: earlier events are not reported
