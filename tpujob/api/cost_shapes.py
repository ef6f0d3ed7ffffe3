"""Shapes about money: reports by where the time went, the ledger, budgets, estimates, forecasts."""

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
    """Medians in seconds. None: unknown."""

    first_wait: float | None  #: until a job's first slice is ready
    first_life: float  #: from then until that slice is lost
    later_wait: float | None  #: the same after a loss
    later_life: float
    setup: float | None  #: from ready to the first step
    release: float | None  #: from a program's end until its slice is gone


class ForecastView(TypedDict):
    """The expected hours, losses of slices and dollars of a job."""

    work_hours: float  #: of steps that count
    wall_hours: RangeView | None  #: from submission to the end; None: the wait is not known
    billed_hours: RangeView  #: hours for which slices are ready
    preemptions: RangeView
    planned_ends: int  #: slices that end as planned before the work is done
    list_micros: RangeView | None  #: None: no price is known for the slices
    pay_micros: RangeView | None
    waiting_hours: float | None  #: this and the next three: on average; None: not known
    #: from ready to the first step; None: no job has been measured, it is guessed in the ranges
    setup_hours: float | None
    redone_hours: float  #: of steps that are lost with a slice and repeated
    #: from a program's end until its slice is gone; None: as of the set-up
    releasing_hours: float | None
    fails: float  #: the probability that the job uses up the preemptions or the wait that it is allowed
    slices: int  #: of earlier jobs at this place, from which the forecast is made
    losses: int  #: of these slices, those that were lost
    half_seconds: HalvesView  #: what the forecast is computed from
    stated: list[str]  #: `wait`, `preemptions`: what was stated by name


class ReachedView(TypedDict):
    """The part of the peak that the jobs of a generation reached (MFU)."""

    generation: str  #: `v5e`
    least: float
    most: float
    jobs: int


class CompareOptions(TypedDict, total=False):
    """The arguments of `JobsApi.compare`. Default: the job file's values, or those of earlier jobs."""

    unit: Unit
    amount: float  #: of work, in that unit
    types: list[str]
    zones: list[str]
    throughput: dict[str, float]  #: in units a second, by type
    #: the same, as a compile check found it: where no job measured it, and it is not stated
    rooflines: dict[str, float]


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


CostGroup = Literal["job", "user", "share", "day", "type", "zone"]


class SpendingView(TypedDict):
    """A budget of money and its use. Slices that a grant pays for do not count."""

    whose: str  #: `job`, or `job 000042` among others; `user ada`; `project`
    limit_micros: int  #: micro-dollars, as are the others
    used_micros: int
    reserve_micros: int  #: cost of saving and releasing the slices that are held or requested
    micros_per_hour: int  #: just now
    unpriced: str  #: a slice that is billed at an unknown price; empty: there is none
    unreadable: list[
        str
    ]  #: ids of jobs whose records cannot be read: what they have spent is not known
    warned: bool  #: four fifths are used
    used_up: bool  #: its slices are being given back
    reached_at: str | None  #: when that begins, at the present rate; None: nothing is billed
    anew_at: str | None  #: when its period ends and the next begins; None: it has no period
    text: NotRequired[str]  #: the budget in one line


class DeadlineView(TypedDict):
    """The deadline of a job, and what it expects of the rest. None: unknown, or the job has ended."""

    finish_by: str
    missed: bool
    latest: (
        str | None
    )  #: when it requests a slice that cannot be preempted at the latest; None: it has one
    low_micros: (
        int | None
    )  #: cost of the whole job if all that is left runs on the cheapest terms, by list price
    high_micros: int | None  #: the same on the dearest
    text: str  #: all of it in one line


class CostPartView(TypedDict):
    part: str  #: such as `productive`, `waiting` (`domain/money/goodput.py`)
    chip_hours: float
    list_micros: int  #: micro-dollars by list price, as far as prices are known


class CostRowView(TypedDict):
    """Amounts are whole micro-dollars; those of the parts add up to `list_micros`, those of the rows to the total."""

    key: str
    then: str  #: the key of `CostView.then`; empty: the row is not divided
    name: str  #: of the job, for rows of jobs; else empty
    jobs: int
    slices: int  #: that were ever ready
    open_slices: int  #: of those, still billed
    chip_hours: float  #: billed: from ready to gone
    unpriced_chip_hours: float  #: of those, with no known price: no amount here has them
    list_micros: int
    #: less than `list_micros` while a slice is missing and not yet confirmed to be gone
    least_micros: int
    pay_micros: int  #: without the slices that a grant pays for
    goodput: float | None  #: the productive part of `chip_hours`; None: nothing was billed
    waited_chip_hours: float  #: of waiting for the cloud, which are not billed
    parts: list[CostPartView]


class LedgerSliceView(TypedDict):
    """A slice that was billed. Times are microseconds since the epoch."""

    slice: str  #: its name in the cloud
    generation: str  #: such as `v5e`
    zone: str
    pricing: str
    chips: int
    ready: int
    gone: int | None  #: None: still billed
    micros_per_hour: int | None  #: of the whole slice, as it was asked for; None: not known
    granted: bool  #: a grant pays for it


class LedgerJobView(TypedDict):
    job: str
    name: str
    slices: list[LedgerSliceView]


class LedgerView(TypedDict):
    """The result of `JobsApi.ledger`, for a comparison with a bill."""

    at: int  #: microseconds since the epoch
    owner: str  #: the label of this backend's slices
    jobs: list[LedgerJobView]


class CostView(TypedDict):
    """The cost of TPU slices, without storage, traffic and the control plane; of removed jobs, too."""

    at: str
    by: CostGroup
    then: str  #: the group that divides each row; empty: none
    since: str  #: the first and the last day that count; empty: without that bound
    until: str
    rows: list[CostRowView]
    total: CostRowView
    #: micro-dollars for copies of data and checkpoints into other regions; in no row, and not in the total
    copies_micros: NotRequired[int]
    emulated: NotRequired[bool]  #: the jobs ran on the emulator: nothing is paid
    unreadable: list[str]  #: ids of jobs whose records cannot be read: their costs are in no amount


class EstimateInputs(TypedDict, total=False):
    """Stated facts of a job for `JobsApi.estimate`. A missing key means unknown."""

    hours: float  #: for which its slices are ready
    steps: int
    step_seconds: float
    stored_gib: float  #: in the bucket, for `stored_days`
    stored_days: float
    objects_written: int
    objects_read: int
    read_gib: float  #: from the bucket, where it lies in another region
    written_gib: float
    quiet: bool  #: the program prints next to nothing
    wait: float  #: mean seconds until a slice is ready
    preempt_every: float  #: mean seconds until a slice is lost
    checkpoint_every: float  #: seconds between two checkpoints


class PriceView(TypedDict):
    """One row of the price list."""

    item: str  #: such as `tpu v5e`
    where: str  #: empty: everywhere
    pricing: str
    usd: str  #: exact, for `per` times `unit`
    unit: str
    per: int
    quoted: str  #: as it is sold, where that is another unit
    source: str
    as_of: str  #: a day
    confidence: str
    note: str
    own: bool  #: from the user's file


class EstimateLineView(TypedDict):
    kind: str  #: such as `slices`, `operations` (`domain/money/estimate_shapes.py`)
    what: str
    formula: str  #: how the amount is made
    amount: float | None  #: in units of the price; None: not stated
    price: PriceView | None  #: None: no price is known, or there is nothing to pay for
    list_micros: int | None  #: None: not known
    pay_micros: int | None  #: without what a grant pays for
    note: str


class EstimateView(TypedDict):
    """The estimated cost of a job in whole micro-dollars. The amounts of the lines add up to the sums; unknown amounts
    are missing in both."""

    at: str
    name: str
    jobs: NotRequired[int]  #: of an array or a sweep; the amounts are of one of them
    type: str
    tpu_slices: int
    chips: int
    hosts: int
    zone: str
    pricing: str
    bucket: str
    hours: float | None  #: None: unknown, and the amounts are of one hour
    length_by: str  #: `stated`, `steps`, `history` or `unknown`
    length: str  #: for people: how the hours were found
    least_hours: float | None  #: of what was seen, where earlier runs tell
    most_hours: float | None
    lines: list[EstimateLineView]
    list_micros: int
    pay_micros: int
    sums: str  #: for people: what is to be paid, as a sum
    unknown: list[str]  #: what is in no sum, and why
    warnings: list[str]
    emulated: NotRequired[bool]  #: the job would run on the emulator: nothing is paid
    forecast: NotRequired[ForecastView]  #: missing: the amount of work is unknown
    budget_micros: NotRequired[int]  #: the job's own budget; missing: it has none
    #: hours of slices that this budget pays, with their release; missing: no budget, or the slices cost it nothing
    budget_hours: NotRequired[float]
    #: the part of the budget that is kept to save and to release a slice; missing with `budget_hours`
    budget_reserve_micros: NotRequired[int]
