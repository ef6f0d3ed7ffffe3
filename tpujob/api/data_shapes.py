"""What the API says of the data that jobs read: where it is in each region, and the copy that a job waits for."""

from typing import NotRequired

# pydantic reads `typing.TypedDict` from Python 3.12 on only
from typing_extensions import TypedDict


class DataPlaceView(TypedDict):
    """Where a data set is read in one region. Dollars are list prices."""

    region: str
    zones: list[str]  #: of the job, in that region
    path: str
    copied: (
        bool  #: it is a copy, made before a slice is asked for there; False: it is read where it is
    )
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
    """A copy that a job waits for, before it asks for a slice."""

    name: str
    region: str
    source: str
    target: str
    bytes: int  #: that are there
    total_bytes: int | None  #: None: not counted
    left_s: float | None  #: at the speed so far; None: not known
    usd: float  #: so far
    since: str
    said: NotRequired[str]  #: all of it in one line
