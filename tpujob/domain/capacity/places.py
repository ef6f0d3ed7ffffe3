"""The place of a job in the queue, and every reason why it waits. Data, and the sentences about it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from tpujob.domain.text import many


class ReasonKind(StrEnum):
    """Why a job requests no slice now. A table in `describe` has the sentence of each."""

    DEPENDENCY = "dependency"  #: it waits for other jobs
    HELD = "held"
    NOT_BEFORE = "not_before"
    GROUP = "group"  #: as many elements of its group run as may
    RUNNING = "running"  #: its owner's jobs
    CHIPS = "chips"  #: its owner's chips
    QUOTA = "quota"  #: the project's chips
    RESERVED = "reserved"  #: the quota is kept free for a job that needs more of it
    ORDER = "order"  #: others come first
    REQUESTED = "requested"  #: requests of others wait in the cloud's queue
    REFUSED = "refused"  #: the cloud refused it lately


@dataclass(frozen=True, slots=True)
class Reason:
    """Fields that a kind does not need are empty."""

    kind: ReasonKind
    jobs: tuple[str, ...] = ()  #: ids of the jobs that it is about, a few of them
    count: int = 0  #: of these jobs, or what is used of the limit
    limit: int = 0
    what: str = ""  #: the type, quota pool, person or condition
    until: float | None = None


class Order(NamedTuple):
    """What the place of a job in the order comes from: the first of these in which two jobs differ decides."""

    band: int  #: index of `BANDS`, which counts
    raised: bool  #: it waited for so long that the next higher one counts
    share_used: float  #: micro-dollars of its share, for its weight, with what is charged for jobs before it
    owner_used: float  #: the same of its owner
    rank: int
    since: float  #: when it could have started


class Place(NamedTuple):
    """What the plan says of one job that waits for a slice."""

    position: int  #: among the jobs that may start, from 1; 0: it waits for something else first
    #: what it may request now, by `circuits.key` of a stockout
    ask: frozenset[str] = frozenset()
    reasons: tuple[Reason, ...] = ()  #: why it may request nothing, the binding one first
    #: the job of an edge that cannot be met any more, and how that ended; None: there is none
    broken: Reason | None = None
    order: Order | None = None  #: None: it waits for something else first


def describe(reason: Reason) -> str:
    """Return the reason as one sentence without a full stop, for people."""
    named = ", ".join(reason.jobs[:3]) + (" ..." if reason.count > 3 else "")
    match reason.kind:
        case ReasonKind.DEPENDENCY:
            return f"waits for the {reason.what} of {named}"
        case ReasonKind.HELD:
            return f"held by {reason.what}" if reason.what else "held since its submission"
        case ReasonKind.NOT_BEFORE:
            return f"may not start before {_time(reason.until)}"
        case ReasonKind.GROUP:
            return f"{reason.count} of {reason.what} run, and at most {reason.limit} may at once"
        case ReasonKind.RUNNING:
            of = f" on {reason.what}" if reason.what else ""
            return (
                f"its owner runs {many(reason.count, 'job')}{of}, and the limit is {reason.limit}"
            )
        case ReasonKind.CHIPS:
            of = f" of {reason.what}" if reason.what else ""
            return f"its owner holds {reason.count} chips{of}, and the limit is {reason.limit}"
        case ReasonKind.QUOTA:
            return f"{reason.count} of {reason.limit} chips of {reason.what} are in use"
        case ReasonKind.RESERVED:
            return f"chips of {reason.what} are kept free for {named}, which needs more of them"
        case ReasonKind.ORDER:
            return f"{many(reason.count, 'job')} before it want the same: {named}"
        case ReasonKind.REQUESTED:
            return f"{many(reason.count, 'request')} for {reason.what} wait in the cloud's queue: {named}"
        case ReasonKind.REFUSED:
            return f"the cloud has refused {reason.what}; next request at {_time(reason.until)}"


def _time(at: float | None) -> str:
    return datetime.fromtimestamp(at or 0.0, UTC).strftime("%Y-%m-%d %H:%M UTC")
