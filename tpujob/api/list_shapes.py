"""Shapes of `JobsApi.list`: the query, and a page of rows."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from tpujob.api.shapes import JobFacts, NextView

#: a column by which rows can be ordered
JobOrder = Literal[
    "id",
    "name",
    "user",
    "state",
    "active",
    "type",
    "zone",
    "step",
    "left",
    "loss",
    "attempts",
    "spent",
    "age",
]


class ListQuery(TypedDict, total=False):
    """Filters, order and page of a list of jobs. Default: every job, the newest first."""

    user: str
    mine: bool  #: the caller's own alone
    active: bool  #: True: active jobs; False: final ones
    #: those that are active or ended within the last day, by `active` unless `order` is given; ignored beside `states`,
    #: `causes` and `group`
    recent: bool
    states: list[str]  #: one of these; likewise the next four
    causes: list[str]
    types: list[str]
    zones: list[str]
    tags: list[str]
    text: str  #: in the id, the name, the user, the note or a tag
    group: str  #: id or name of an array or a sweep: its elements alone; else `recent` leaves elements out
    order: JobOrder
    reverse: bool  #: reverse the usual direction of the column
    after: str  #: `JobPage.next` of the page before
    limit: int  #: rows at most; 0: all
    fields: list[str]  #: of a row, beside its id; left out: all


class JobRow(JobFacts):
    """A job in a list; the fields mean what they mean in a `JobView`. Texts are clean, and cut where they are long."""

    mine: bool
    why: str
    next: NextView
    preemptions: int  #: attempts that ended so
    steps_per_s: float | None
    left_s: float | None
    last_error: NotRequired[bool]  #: it has succeeded with an error in its last lines
    #: a loss that is not finite, and its budgets of which little is left, in words
    warned: list[str]
    #: of an element: its row of the matrix, the first parameters; as in a `JobView`, not for everyone
    params: NotRequired[dict[str, str]]
    #: the first of the numbers that its program reported last; None: not finite
    metrics: NotRequired[dict[str, float | None]]


class JobPage(TypedDict):
    """A page of the matching jobs, with counts."""

    rows: list[JobRow]
    next: str  #: `after` of the next page; empty: this is the last page
    first: NotRequired[int]  #: the number of the first row among those that match, from 1
    matching: int  #: jobs that match, on all pages
    total: int  #: all jobs of the backend
    unreadable: list[str]  #: ids of jobs whose records cannot be read, which are on no page
    #: by state, of those that match everything but `states`, `active` and `recent`
    states: dict[str, int]
    revision: int  #: of the store: what the page shows is at least as new
