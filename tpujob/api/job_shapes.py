"""What the page of one job shows beyond its record: what may be done with it, its timeline, its hosts, its curves."""

from typing import Literal

# pydantic reads `typing.TypedDict` from Python 3.12 on only
from typing_extensions import TypedDict

ActionName = Literal["cancel", "resume", "delete", "clean"]


class AskView(TypedDict):
    """An argument that an action takes."""

    name: Literal["budget", "checkpoints"]  #: an amount in US dollars; yes or no
    does: str
    needed: bool


class ActionView(TypedDict):
    """What the caller can do with a job in its state: a method of `JobsApi`."""

    name: ActionName
    does: str  #: what happens then, such as `gives tj-000042-1 back`
    costs: str  #: what is billed from then on; one phrase
    asks: list[AskView]


class RefusedView(TypedDict):
    """What the caller cannot do with a job in its state."""

    name: ActionName
    why: str
    forbidden: bool  #: for want of a role, and not for the job's state


SpanKind = Literal[
    "waiting",
    "copying",
    "provisioning",
    "preparing",
    "compiling",
    "productive",
    "redone",
    "hung",
    "held",
    "condemned",
    "releasing",
    "unknown",
]


class SpanView(TypedDict):
    """A stretch of a job's time; `tpujob cost` divides it alike. Waiting holds the requests that came to nothing."""

    kind: SpanKind
    start: str
    end: str | None  #: None: it goes on
    seconds: float
    slice: str  #: empty: the job had none
    attempt: int | None
    #: why it ended; of waiting, held, condemned and releasing: what led there
    cause: str | None
    text: str  #: the same in one line, where there is more to say
    requests: int  #: for a slice, that came to nothing in this time
    #: by list price; None: the price is unknown
    usd: float | None


class HostView(TypedDict):
    """A host of the slice that serves a job."""

    host: int
    address: str
    heard_at: str | None  #: when its newest report was written; None: none is known
    phase: str  #: of the attempt, as its agent says
    step: int | None
    notice: str  #: `preempted` or `maintenance`; empty: none
    error: str
    silent_since: str | None  #: since when it does not answer over SSH either
    physical: str  #: the machine below it; empty: not known
    suspicion: float | None  #: of wrong numbers; None: the job is not the caller's
    refused: bool  #: programs are kept off that machine


class CurveView(TypedDict):
    """One number that a program reported for its steps, in one attempt. Each point stands for a bucket of steps."""

    attempt: int
    #: the last step of the bucket; seconds since the attempt's first; least, greatest and last value
    points: list[tuple[int, float, float, float, float]]
    resumed_from: int | None
    kept: (
        int | None
    )  #: steps after this one were lost, and made again if there is a later attempt; None: all count


class ChartView(TypedDict):
    name: str  #: `loss`, `ms`, `steps/s`, or what the program calls it
    title: str
    curves: list[CurveView]


class MetricsView(TypedDict):
    """The curves of the numbers that a job's program reported, by attempt, the oldest first."""

    charts: list[ChartView]
    attempts: list[int]  #: that are shown
    left_out: int  #: earlier attempts that are not
    unread: list[int]  #: attempts of which nothing could be read just now
    why: str  #: there is no curve, or one is missing, for this reason; empty: all is there
