"""The records of notifications: what is to be told, what a channel has been told, and messages with their tries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

#: seconds for which notes and messages are kept; what a note is told by cannot be told again before that
KEPT = 30 * 86400.0


class Kind(StrEnum):
    """What is told. Nothing that tpujob mends by itself is among it: those jobs have not settled."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"  #: by somebody else than the job's owner
    HELD = "held"  #: its slice is kept, and billed, until a person decides
    WAITING = "waiting"  #: for hardware, for longer than the context allows
    STUCK = "stuck"  #: in a state that should have ended long ago
    BUDGET_WARNED = "budget_warned"
    BUDGET_USED_UP = "budget_used_up"
    LEAK = "leak"  #: a slice that no job claims
    HOST_REFUSED = "host_refused"  #: programs are kept off a machine
    SUMMARY = "summary"  #: of a day
    TEST = "test"

    @property
    def urgent(self) -> bool:
        """Whether it is told in quiet hours, too: it costs money now."""
        return self in (Kind.BUDGET_WARNED, Kind.BUDGET_USED_UP, Kind.LEAK, Kind.TEST)


@dataclass(frozen=True, slots=True)
class Note:
    """One fact for one channel."""

    key: str  #: the same fact has the same key, whoever finds it, and however often
    kind: Kind
    at: float
    text: str  #: one sentence
    job: str = ""  #: its id; empty: it is about no single job
    name: str = ""  #: of the job
    user: str = ""  #: whose job it is
    attempt: int = 0
    cause: str = ""
    zone: str = ""
    lines: tuple[str, ...] = ()  #: what more there is to say
    owner: str = ""  #: of the job, who may read all of this; empty: admins alone may
    public: str = ""  #: what others may read in the place of text and lines; empty: the cause

    @property
    def topic(self) -> str:
        """Notes of one topic make one message: a lost zone is one fact, however many jobs were in it."""
        return f"{self.kind}/{self.cause}/{self.zone}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the events of all jobs were read."""

    change: int  #: of the store
    since: float  #: when reading began: what happened before that is told to nobody


@dataclass(frozen=True, slots=True)
class Told:
    """When a topic was last told, and for how long it is collected before the next message."""

    at: float
    window: float  #: seconds


@dataclass(frozen=True, slots=True)
class Channel:
    """What a channel has been told lately, and whether it may be told more."""

    name: str
    version: int = 0  #: 0: not yet stored
    made: int = 0  #: messages so far
    topics: Mapping[str, Told] = field(default_factory=dict[str, Told])
    jobs: Mapping[str, float] = field(default_factory=dict[str, float])  #: when each was last told
    muted_until: float = 0.0
    disabled_at: float | None = None  #: nothing is sent any more, until a test or a replay succeeds
    disabled_why: str = ""
    closing: str = ""  #: the newest message, while its notes may not be marked as told yet


@dataclass(frozen=True, slots=True)
class Try:
    at: float
    error: str = ""  #: empty: it was delivered


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of one try to deliver a message."""

    error: str = ""  #: empty: it was delivered
    permanent: bool = False  #: the same would come of each other try
    gone: bool = False  #: whoever was told does not want to be told any more
    retry_after: float = 0.0  #: seconds that the other side asks for


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: the same content with the same id in each try."""

    id: str
    channel: str
    at: float
    notes: tuple[Note, ...]  #: the first of them
    keys: tuple[str, ...]  #: of all notes that it tells
    tries: tuple[Try, ...] = ()
    state: Literal["waiting", "sent", "failed"] = "waiting"
    due: float | None = None  #: the next try; None: there is none
    counted_from: int = 0  #: tries before this one were made before a person sent it again
    claimed_by: str = ""  #: the backend that has tried it last, or is trying it
    version: int = 1

    @property
    def kind(self) -> Kind:
        return self.notes[0].kind

    @property
    def topic(self) -> str:
        return self.notes[0].topic

    @property
    def until(self) -> float:
        """Until when it is kept."""
        return self.at + KEPT
