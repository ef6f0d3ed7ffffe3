"""What a backend says of itself."""

from typing_extensions import TypedDict


class TroubleView(TypedDict):
    """Something that is not as it should be."""

    about: str  #: `store`, `loop` or `notifications`
    text: str
    hint: str  #: what it means for jobs, and what to do


class StoreView(TypedDict):
    kind: str  #: `sqlite` or `firestore`
    read_s: float | None  #: how long a cheap read took just now; None: it failed
    revision: int  #: the number of its newest change
    behind: int  #: changes that lists of jobs do not show yet


class LoopView(TypedDict):
    """The passes over jobs, of the process that answers."""

    called: bool  #: it makes one whenever Cloud Scheduler calls; False: it makes them by itself
    passed_at: str | None  #: when it last looked at what is due; None: not yet
    age_s: float | None  #: how long ago that was
    late: bool  #: too long ago
    pass_s: float  #: how long the last one took that was called for, with its ticks
    due: int  #: jobs whose tick is late, and not begun
    ticking: int  #: jobs that are being ticked now
    longest_s: float  #: for how long one of them has been
    ticks: int  #: since the process began
    failed: int  #: of those: by an error of a store, or by a bug


class HealthView(TypedDict):
    at: str
    ok: bool  #: there are no troubles
    troubles: list[TroubleView]  #: the worst first
    version: str
    context: str
    started_at: str
    store: StoreView
    loop: LoopView
    #: offers that are not asked for, as the cloud refused them lately
    refused: int
    streams: int  #: open pages that are kept up to date
    waiting: int  #: messages that are still to be sent; at most 1,000 are counted
    schemas: dict[str, int]  #: the version of each thing that it writes
