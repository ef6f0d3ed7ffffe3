"""What `JobsApi.estimate` and `JobsApi.compare` say of what may come. JSON-shaped, as all shapes here."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Unit = Literal["steps", "tokens", "samples"]


class RangeView(TypedDict):
    """Nine of ten jobs are to end between `low` and `high`; one of ten above `p90`."""

    low: float
    p10: float
    p50: float
    p90: float
    high: float


class HalvesView(TypedDict):
    """Seconds that half of them take at most. None: not known."""

    first_wait: float | None  #: until a job's first slice is ready
    first_life: float  #: until that is lost
    later_wait: float | None  #: the same after a loss
    later_life: float
    setup: float | None  #: from ready to the first step
    release: float | None  #: from a program's end until its slice is gone


class ForecastView(TypedDict):
    """What a job will probably take, with the slices that it will probably lose."""

    work_hours: float  #: of steps that count
    wall_hours: RangeView | None  #: from submission to the end; None: the wait is not known
    billed_hours: RangeView  #: for which slices are ready
    preemptions: RangeView
    list_micros: RangeView | None  #: None: no price is known for the slices
    pay_micros: RangeView | None
    waiting_hours: float | None  #: this and the next three: on average; None: not known
    setup_hours: (
        float | None
    )  #: from ready to the first step; None: no job has been measured, it is guessed in the ranges
    redone_hours: float  #: of steps that come to nothing with a slice
    releasing_hours: (
        float | None
    )  #: from a program's end until its slice is gone; None: as of the set-up
    fails: float  #: the share of simulated runs that use up the preemptions or the wait that the job is allowed
    slices: int  #: of earlier jobs, on which it rests, at this place
    losses: int  #: of them
    half_seconds: HalvesView  #: what it is computed with
    stated: list[str]  #: `wait`, `preemptions`: what was stated by name


class CompareAsked(TypedDict, total=False):
    """What `JobsApi.compare` is to compare. Left out: as the job file says, or as earlier jobs tell."""

    unit: Unit
    amount: float  #: of work, in that unit
    types: list[str]
    zones: list[str]
    throughput: dict[str, float]  #: in units a second, by type
    rooflines: dict[
        str, float
    ]  #: the same, as a compile check found it: where no job measured it, and it is not stated


class WayView(TypedDict):
    """One type in one zone."""

    type: str
    tpu_slices: int
    chips: int
    zone: str
    pricing: str
    usd_per_hour: float | None  #: of the slices; None: no price is known
    per_second: float | None  #: in the unit asked for; None: unknown
    throughput_by: str  #: `measured`, `roofline`, `stated`, or empty
    measured_jobs: int
    forecast: ForecastView | None
    cheapest: bool
    fastest: bool
    note: str  #: for people: why something is not known


class CompareView(TypedDict):
    at: str
    name: str
    unit: Unit
    amount: float
    ways: list[WayView]  #: those that are known first, the cheapest of them first
    warnings: list[str]
    emulated: NotRequired[bool]  #: the job would run on the emulator: nothing is paid
