"""Shapes about the backend, the lab's capacity, machines, slices, records and notifications."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from tpujob.api.shapes import EventView


class TroubleView(TypedDict):
    """Something that is not as it should be."""

    about: str  #: `store`, `records`, `loop` or `notifications`
    text: str
    hint: str  #: what it means for jobs, and what to do


class StoreView(TypedDict):
    kind: str  #: `sqlite` or `firestore`
    read_s: float | None  #: how long a cheap read took just now; None: it failed
    revision: int  #: number of the store's newest change
    behind: int  #: changes that lists of jobs do not show yet


class LoopView(TypedDict):
    """The control loop of the process that answers: its passes over the jobs."""

    called: bool  #: a pass is made when Cloud Scheduler calls; False: the loop runs by itself
    passed_at: str | None  #: the last pass; None: none yet
    age_s: float | None  #: seconds since the last pass
    late: bool  #: the last pass is too old
    pass_s: float  #: seconds that the last called pass took, with its ticks
    due: int  #: jobs whose tick is late, and not begun
    ticking: int  #: jobs that are being ticked now
    longest_s: float  #: seconds that the longest of these ticks has taken so far
    ticks: int  #: ticks since the process began
    failed: int  #: ticks of those that failed, by an error of the store or a bug


class HealthView(TypedDict):
    at: str
    ok: bool  #: there are no troubles
    troubles: list[TroubleView]  #: the worst first
    version: str
    context: str
    started_at: str
    store: StoreView
    loop: LoopView
    #: offers that are not requested now, as the cloud refused them lately
    refused: int
    streams: int  #: open pages that are kept up to date
    waiting: int  #: messages that are still to be sent; at most 1,000 are counted
    schemas: dict[str, int]  #: version of each stored format, by name


# Events and hardware of the lab --------------------------------------------------------------------------------------


class JobEventView(EventView):
    """An event with its job and user."""

    job: str
    name: str  #: of the job; empty: the job was removed
    user: str


class EventsPage(TypedDict):
    """Events of all jobs, the newest first."""

    events: list[JobEventView]
    next: str  #: `before` of the next page; empty: there are no older events


class OfferView(TypedDict):
    """One type in one zone with one pricing: slices held and requested, and the outcomes of the last day."""

    type: str
    zone: str
    pricing: str
    held: int  #: slices that are ready
    held_chips: int
    usd_per_hour: float | None  #: of all held slices; None: the price of one is unknown
    asked: int  #: slices that are requested and not ready yet
    asked_chips: int
    asked_since: str | None  #: the oldest of these requests
    ready: int  #: slices that became ready within the day
    wait_p50_s: float | None  #: from request to ready, of those
    wait_p90_s: float | None
    refused: int  #: requests that the cloud refused within the day
    preempted: int  #: attempts that the cloud ended within the day


class OpenCircuit(TypedDict):
    """An offer that the cloud has refused lately: while its circuit is open, no job requests it."""

    cause: str  #: STOCKOUT or QUOTA
    place: str  #: a zone, or a region where a quota holds there
    what: str  #: a type; for a quota, a generation and the least chips that are refused
    pricing: str
    refusals: int  #: in a row
    since: str
    again_at: str  #: when a job may ask for it again
    open: bool  #: False: that time has passed, and no job has asked since


class AllowanceView(TypedDict):
    """The quota of one kind of TPU in one zone, and its use by all users."""

    type: str  #: the generation
    provider: str  #: of the slices that it limits, as `Slice.provider`
    part: str  #: `one host` where slices of one host have a quota of their own; empty: the others, or all
    pricing: str
    zone: str
    known: bool  #: there is a quota of that kind there
    limit: int | None  #: the smaller of the two limits; None: there is none
    zone_limit: int | None
    region_limit: int | None
    unit: str  #: of limits and use: `cores` or `chips`; empty: not known
    used: int | None  #: by nodes and queued resources that the cloud lists; None: not known
    granted_chips: int


class QuotaView(AllowanceView):
    held: int  #: by jobs of this backend, in `unit`
    refused: int  #: of their requests, for want of quota, within the day


class QuotasView(TypedDict):
    """The project's quota, as last read with the backend's own rights."""

    at: str | None  #: when quota was read; None: it never was
    rows: list[QuotaView]
    notes: list[str]  #: what could not be read beside the limits
    unknown: str  #: why the newest reading failed; empty: it did not
    hint: str  #: what to do about a failed reading


class CapacityReport(TypedDict):
    at: str
    day_s: float  #: how long "within the day" is
    offers: list[OfferView]
    closed: list[OpenCircuit]  #: open circuits; the name is older than the word
    waiting: int  #: jobs that wait for a slice
    quota: NotRequired[QuotasView]


# For administrators --------------------------------------------------------------------------------------------------


class CallerView(TypedDict):
    """The result of `JobsApi.whoami`."""

    id: str
    name: str
    role: str  #: `viewer`, `submitter` or `admin`


class MemberView(TypedDict):
    """A person or program that may use the backend, has left, or is only named in its settings."""

    name: str  #: a login or an e-mail address
    role: str  #: empty: none
    #: of the first principal who signed in under that name; empty: none has yet
    id: str
    jobs: NotRequired[int]  #: of one who has left: the jobs of which they are the owner
    active: NotRequired[int]  #: jobs of these that have not ended
    unread: NotRequired[int]  #: of one who has left: records that cannot be read, and may be theirs
    secrets: NotRequired[int]  #: of one who has left
    #: settings that name the user, who is no member
    named: NotRequired[list[str]]
    warnings: NotRequired[list[str]]  #: why a change of the list may not have the expected effect


class SuspectView(TypedDict):
    """An accused or pinned machine, as `tpujob hosts` shows it."""

    physical: str
    zone: str
    score: float  #: faded to now
    refused: bool  #: programs of everybody are kept off it
    #: owners whose own programs are kept off it, as their jobs have met it
    accusers: NotRequired[int]
    pinned: str  #: empty, `good` or `bad`
    reasons: list[str]  #: accusations that count, oldest first
    open: list[str]  #: accusations that nothing proves, so that they do not count
    updated_at: str


class LeakView(TypedDict):
    """Something in the cloud that carries our label and that no job claims."""

    name: str
    zone: str
    job: str
    age_s: float
    usd_per_hour: float | None  #: None: the type is not known any more
    detail: str


class SweptView(TypedDict):
    """The result of `tpujob sweep` in every zone of the context, or of its dry run."""

    deleted: list[LeakView]  #: asked to end
    kept: list[LeakView]  #: so young that a job may just be about to claim it
    failed: list[LeakView]  #: could not be asked to end; `detail` says why
    keys: list[str]  #: names of slices that are gone, whose keys were removed
    #: neither used nor deleted: the record of the job cannot be read
    unclear: list[LeakView]
    #: zones (or `keys`) that could not be listed, each with the reason
    unlisted: NotRequired[dict[str, str]]


class BrokenView(TypedDict):
    """A rule that does not hold of a record (`domain/invariants.py`)."""

    rule: str
    job: str
    text: str


# Notifications -------------------------------------------------------------------------------------------------------
# No secret is in them.


class RuleView(TypedDict):
    """A rule of a channel: the events that it reports."""

    users: list[str]  #: whose jobs; empty: those of all users, and what is about no job
    on: list[str]  #: kinds of events; empty: everything that concerns them


class ChannelView(TypedDict):
    name: str
    kind: str  #: `slack`, `email` or `webhook`
    to: str  #: its destination; empty: only admins see it, and the user whose own address it is
    rules: list[RuleView]  #: of the context; jobs may name the channel besides
    state: str  #: `works`, `failing` at its last try, or `untried`
    waiting: int  #: messages that are still to be sent
    last: DeliveryView | None  #: the message that was tried last


class DeliveryView(TypedDict):
    """A message: the same content and the same id in each try."""

    id: str
    channel: str
    at: str
    kind: str
    state: str  #: `waiting` for its next try, `sent`, `failed`, or `collapsed` into another message of a burst
    headline: str
    lines: list[str]
    job: str  #: its id; empty: it is about no single job
    count: int  #: of messages of a burst, this one included
    tries: int
    tried_at: str | None
    error: str  #: of the last try; empty: it was delivered. The receiver's answer is only for those who see `to`
    due: str | None  #: its next try
