"""What `JobsApi.cost` sends: chip-hours and money of many jobs, divided by where the time went."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

CostGroup = Literal["job", "user", "day", "type", "zone"]


class SpendingView(TypedDict):
    """One budget of money as it stands. What a grant pays for is not in it."""

    whose: str  #: `job`, `user ada` or `project`
    limit_micros: int  #: micro-dollars, as are the others
    used_micros: int
    reserve_micros: int  #: what it still costs to save and to give back what is there or asked for
    micros_per_hour: int  #: just now
    unpriced: str  #: a slice that is billed at a price that nobody knows; empty: there is none
    warned: bool  #: four fifths are used
    used_up: bool  #: its slices are being given back
    reached_at: str | None  #: when that begins, at the present rate; None: nothing is billed
    anew_at: str | None  #: when its period ends, and another begins; None: it has none


class CostPartView(TypedDict):
    part: str  #: such as `productive`, `waiting` (`domain/money/goodput.py`)
    chip_hours: float
    list_micros: int  #: micro-dollars by list price, as far as prices are known


class CostRowView(TypedDict):
    """Amounts are whole micro-dollars; those of the parts add up to `list_micros`, those of the rows to the total."""

    key: str
    name: str  #: of the job, for rows of jobs; else empty
    jobs: int
    slices: int  #: that were ever ready
    open_slices: int  #: of those, still billed
    chip_hours: float  #: billed: from ready to gone
    unpriced_chip_hours: float  #: of those, with no known price: no amount here has them
    list_micros: int
    least_micros: (
        int  #: less than `list_micros` while a slice is missing and not yet confirmed to be gone
    )
    pay_micros: int  #: without the slices that a grant pays for
    goodput: (
        float | None
    )  #: the productive part of all chip-hours, waiting included; None: there was no time
    parts: list[CostPartView]


class LedgerSliceView(TypedDict):
    """A slice that was ever ready. Times are microseconds since the epoch."""

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
    """What `JobsApi.ledger` sends, to be set beside a bill."""

    at: int  #: microseconds since the epoch
    owner: str  #: what this backend's slices are labelled with
    jobs: list[LedgerJobView]


class CostView(TypedDict):
    """Of TPU slices alone: storage, traffic and the control plane are not in it. Jobs that were cleaned away, and
    those whose record cannot be read (`fsck` names them), are not in it either."""

    at: str
    by: CostGroup
    rows: list[CostRowView]
    total: CostRowView
