"""What the calls for an administrator send: suspected machines, orphaned slices, rules that do not hold."""

from typing import NotRequired

from typing_extensions import TypedDict


class CallerView(TypedDict):
    """What `JobsApi.whoami` says."""

    id: str
    name: str
    role: str  #: `viewer`, `submitter` or `admin`


class MemberView(TypedDict):
    """A person or program that may use the backend."""

    name: str  #: a login or an e-mail address
    role: str
    #: of the first principal who signed in under that name; empty: none has yet
    id: str


class SuspectView(TypedDict):
    """What `tpujob hosts` shows of a machine."""

    physical: str
    zone: str
    score: float  #: faded to now
    refused: bool  #: programs of everybody are kept off it
    accusers: NotRequired[
        int
    ]  #: owners whose own programs are kept off it, as their jobs have met it
    pinned: str  #: empty, `good` or `bad`
    reasons: list[str]
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
    """What `tpujob sweep` did, or would do, in every zone of the context."""

    deleted: list[LeakView]  #: asked to end
    kept: list[LeakView]  #: so young that a job may just be about to claim it
    failed: list[LeakView]  #: could not be asked to end; `detail` says why
    keys: list[str]  #: names of slices that are gone, whose keys were removed
    unlisted: NotRequired[
        dict[str, str]
    ]  #: zones (or `keys`) that could not be listed, each with the reason


class BrokenView(TypedDict):
    """A rule that does not hold of a record (`domain/invariants.py`)."""

    rule: str
    job: str
    text: str
