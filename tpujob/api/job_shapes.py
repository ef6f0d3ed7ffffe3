"""Shapes for the page of one job beside its record: its actions, timeline, hosts, curves and data."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

ActionName = Literal["cancel", "resume", "delete", "clean"]


class AskView(TypedDict):
    """An argument that an action takes."""

    name: Literal["budget", "checkpoints"]  #: an amount in US dollars; yes or no
    does: str
    needed: bool


class ActionView(TypedDict):
    """An action that the caller may take on a job in its state: a method of `JobsApi`."""

    name: ActionName
    does: str  #: its effect, such as `releases tj-000042-1-70f9459d, and cancels the job`
    costs: str  #: what is billed from then on; one phrase
    asks: list[AskView]


class RefusedView(TypedDict):
    """An action that the caller may not take on a job in its state."""

    name: ActionName
    why: str
    forbidden: bool  #: the caller lacks the role; False: the job's state does not allow it


SpanKind = Literal[
    "waiting",
    "copying",
    "provisioning",
    "preparing",
    "compiling",
    "productive",
    "redone",
    "nonfinite",
    "hung",
    "held",
    "condemned",
    "candidate",
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
    suspicion: float | None  #: score of its machine; None: the job is not the caller's
    refused: bool  #: programs are kept off that machine


class CurveView(TypedDict):
    """One number that a program reported for its steps, in one attempt. Each point stands for a bucket of steps."""

    job: str
    attempt: int
    began_at: str  #: time of the attempt's first step, RFC 3339
    #: the last step of the bucket; seconds since `began_at`; least, greatest and last value
    points: list[tuple[int, float, float, float, float]]
    resumed_from: int | None
    #: steps after this one were lost, and made again if there is a later attempt; None: all count
    kept: int | None
    #: why the attempt ended, such as PREEMPTED; None: it succeeded, goes on, or was stopped by its user
    cause: str | None
    nonfinite: int | None  #: first step whose loss is not finite
    checkpoint: int | None  #: step of the newest one that the attempt saved


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
    why: str  #: why curves are missing; empty: none is


class RunView(TypedDict):
    """A job whose curves are drawn beside those of others."""

    id: str
    name: str
    user: str
    state: str
    label: str  #: by what differs between the runs, such as `lr=0.001`; no two runs have the same
    values: dict[str, str]  #: of `CurvesView.keys`, as far as the run has them
    step: int | None
    steps: int | None
    attempts: int
    metrics: dict[str, float | None]  #: newest values, with the loss; None: not finite


class CurvesView(TypedDict):
    """The curves of several jobs, with what differs between the jobs."""

    runs: list[RunView]
    keys: list[str]  #: what differs and the caller may see, the most telling first
    charts: list[ChartView]
    left_out: int  #: jobs that are not shown, as they are too many
    unread: list[str]  #: ids of jobs of which not everything could be read just now
    why: str  #: why curves are missing; empty: none is


# Data that jobs read -------------------------------------------------------------------------------------------------


class DataPlaceView(TypedDict):
    """The place of a data set for one region. Dollars are list prices."""

    region: str
    zones: list[str]  #: of the job, in that region
    path: str
    #: it is a copy, made before a slice is asked for there; False: it is read where it is
    copied: bool
    missing: int  #: objects that are still to be copied, as are the bytes
    missing_bytes: int
    usd_copy: float  #: once, for what is missing
    usd_epoch: float  #: for reading the source from that region instead, once over; 0: it is local
    usd_month: float | None  #: for keeping it; None: no price is known


class DataView(TypedDict):
    """An entry of `data` in a job file."""

    name: str
    source: str
    base: str  #: what copies are made of
    location: str  #: of `base`
    to_bring: bool  #: the storage cannot read the source: `create` copies it to `base` first
    objects: int  #: at `base`, as are the bytes
    bytes: int
    counted: bool  #: False: there are more than were counted
    places: list[DataPlaceView]


class CopyView(TypedDict):
    """A copy that a job waits for, before it requests a slice."""

    name: str
    region: str
    source: str
    target: str
    bytes: int  #: that are there
    total_bytes: int | None  #: None: not counted
    left_s: float | None  #: at the speed so far; None: not known
    usd: float  #: so far
    since: str
    text: NotRequired[str]  #: the copy in one line
