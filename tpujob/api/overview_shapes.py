"""What `JobsApi.happened` and `JobsApi.capacity` send: what goes on in the lab as a whole."""

from typing import NotRequired

from typing_extensions import TypedDict

from tpujob.api.shapes import EventView


class JobEventView(EventView):
    """An event, and whose it is."""

    job: str
    name: str  #: of the job; empty: it is not there any more
    user: str


class EventsPage(TypedDict):
    """Events of all jobs, the newest first."""

    events: list[JobEventView]
    next: str  #: ask for what comes `before` it; empty: there is nothing older


class OfferView(TypedDict):
    """One type in one zone, as it is paid for: what is there, what is asked for, and how the last day went."""

    type: str
    zone: str
    pricing: str
    held: int  #: slices that are ready
    held_chips: int
    usd_per_hour: float | None  #: of those; None: the price of one is not known
    asked: int  #: slices that are asked for and not there yet
    asked_chips: int
    asked_since: str | None  #: the oldest of these requests
    ready: int  #: slices that became ready within the day
    wait_p50_s: float | None  #: from request to ready, of those
    wait_p90_s: float | None
    refused: int  #: requests that the cloud refused within the day
    preempted: int  #: attempts that the cloud ended within the day


class OpenCircuit(TypedDict):
    """An offer that the cloud has refused lately: while its circuit is open, no job asks for it."""

    cause: str  #: STOCKOUT or QUOTA
    place: str  #: a zone, or a region where a quota holds there
    what: str  #: a type; with a quota its generation
    pricing: str
    refusals: int  #: in a row
    since: str
    again_at: str  #: when a job may ask for it again
    open: bool  #: False: that time has passed, and no job has asked since


class AllowanceView(TypedDict):
    """How much of one kind of TPU may be held in one zone, and how much all users hold."""

    type: str  #: the generation
    part: str  #: `one host` where slices of one host have a quota of their own; empty: the others, or all
    pricing: str
    zone: str
    known: bool  #: there is a quota of that kind there
    limit: int | None  #: the smaller one of the two; None: there is none
    zone_limit: int | None
    region_limit: int | None
    unit: str  #: of limits and use: `cores` or `chips`; empty: not known
    used: int | None  #: None: not known
    used_by: str  #: who says so: `nodes`, which the cloud lists, or `monitoring`, which may be hours late
    granted_chips: int


class QuotaView(AllowanceView):
    held: int  #: by jobs of this backend, in `unit`
    refused: int  #: of their requests, for want of quota, within the day


class QuotasView(TypedDict):
    """Quota as the backend may read it, with its own rights and seldom."""

    at: str | None  #: when it was read; None: it was not
    rows: list[QuotaView]
    notes: list[str]  #: what could not be read beside the limits
    unknown: str  #: why the newest attempt to read it failed; empty: it did not
    hint: str  #: then what to do


class CapacityReport(TypedDict):
    at: str
    day_s: float  #: how long "within the day" is
    offers: list[OfferView]
    closed: list[OpenCircuit]  #: open circuits; the name is older than the word
    waiting: int  #: jobs that wait for a slice
    quota: NotRequired[QuotasView]
