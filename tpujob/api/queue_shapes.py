"""The queue: which job gets a slice next, why another one waits, and what shares and owners have used lately."""

from typing_extensions import TypedDict


class ReasonView(TypedDict):
    """The reason for which a job requests no slice now. Fields that a kind does not need are empty."""

    kind: str  #: a `ReasonKind`, such as `order`
    text: str  #: one sentence without a full stop
    jobs: list[str]  #: ids of the jobs that it is about, three at most
    count: int  #: of these jobs, or what is used of the limit
    limit: int
    until: str | None


class OrderView(TypedDict):
    """The sort key of a job in the queue: the first field in which two jobs differ decides."""

    priority: str  #: that counts
    raised: bool  #: it has waited for a day, so that the next higher priority counts
    #: of its share, divided by its weight: list-price dollars that fade, with the charges of jobs before it. 0 also
    #: when jobs of only one share and owner wait, as it decides nothing then
    share_usd: float
    owner_usd: float  #: the same of its owner
    rank: int  #: among its owner's jobs, larger goes first
    since: str  #: when it could have started


class PlaceView(TypedDict):
    """The place in the queue of a job that waits for a slice."""

    position: int  #: among the jobs that may start, from 1; 0: it waits for something else first
    #: an estimate; in the past: it may request a slice now; None: unknown
    starts_about: str | None
    passed: int  #: how often this backend has seen another job get what it waits for
    reasons: list[ReasonView]  #: the binding one first; none: it may request a slice now
    order: OrderView | None  #: None: it waits for something else first
    helps: list[str]  #: what a person can do about it, with commands in backquotes


class QueueRow(PlaceView):
    """A job that waits."""

    id: str
    name: str
    user: str
    mine: bool
    share: str
    type: str  #: that it prefers, as are the chips
    zones: list[str]
    pricing: str
    tpu_slices: int
    chips: int
    since: str  #: when it began to wait, or last had a slice
    #: elements of its group after it that wait for the same; they have no rows, unless all rows are asked for
    alike: int


class QueueView(TypedDict):
    """The jobs that wait: those that may start in their order, then those that wait for something else first."""

    rows: list[QueueRow]
    waiting: int  #: jobs that wait, also those beyond the limit


class OwnerUsage(TypedDict):
    user: str
    usd: float  #: list-price dollars of the last weeks, of which half counts after each 7 days
    part: float  #: of all that its share has used, from 0 to 1


class ShareView(TypedDict):
    """A share of the context. Its owners are equal among themselves; what each used elsewhere counts, too."""

    name: str  #: empty: of jobs that name none
    weight: float  #: of the share; of one without members, of each of its users
    usd: float  #: that it has used, as of an owner
    part: float  #: of all that was used, from 0 to 1
    due: float  #: the part that its weight gives it
    waiting: int  #: its jobs that wait
    owners: list[OwnerUsage]  #: who has used most comes first
