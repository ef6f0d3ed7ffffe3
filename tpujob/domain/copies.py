"""The data that a job reads, and the copies that bring objects into the region of a slice. Data only.

`capacity/datasets.py` decides which copies are needed, `decide/copying.py` when they are made; the storage itself
moves the bytes. Every place is a `gs://` prefix without a slash at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Dataset:
    """One entry of `data` in a job file."""

    name: str
    source: str  #: as in the job file; any scheme
    base: str  #: source of all copies: `source`, or its upload at the job's submission
    location: str  #: of `base`: a region, or a continent such as `us`
    local: tuple[str, ...]  #: regions in which reading `base` is free
    at: Mapping[str, str]  #: by region: the prefix that jobs there read; `base`: no copy is needed


@dataclass(frozen=True, slots=True)
class Saved:
    """The part of a workdir that is copied to the job's next region: outputs, the newest checkpoint to resume from, and
    any later one; of a program that reports no step, everything but logs and reports."""

    step: int | None  #: of the newest committed checkpoint; None: the program reports none
    before: int = 0  #: only a checkpoint before this step may be resumed from; 0: any


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The progress of a copy. Names are paths below the prefix."""

    below: tuple[str, ...] = ()  #: copied folders, sorted; empty: all
    after: str = ""  #: all objects up to this name are at the target
    beyond: tuple[str, ...] = ()  #: objects after that name which are copied and counted already
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])  #: unfinished rewrites
    objects: int = 0  #: copied so far, like `bytes`
    bytes: int = 0
    same: int = 0  #: objects that the target had already
    same_bytes: int = 0
    total: int | None = None  #: objects at the source at the start; None: too many to count first
    total_bytes: int | None = None
    passes: int = 0  #: complete passes through all names; the second and later ones find changes
    moved: bool = False  #: this pass has copied an object
    whole: bool = False  #: a pass found every object of the source at the target

    @property
    def there(self) -> int:
        """Bytes that are at the target."""
        return self.bytes + self.same_bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of all objects below one prefix to another one. Rates are in micro-dollars, as of the start."""

    id: str  #: a function of source, region and attempt, so that a repeated request has the same
    name: str  #: for people
    source: str
    target: str
    region: str  #: of the target
    started_at: float
    micros_per_gib: int  #: traffic out of the source's region
    micros_per_object: int
    saved: Saved | None = None  #: copied part of a workdir; None: everything is copied
    progress: CopyProgress = field(default_factory=CopyProgress)
    done_at: float | None = None  #: when the copy was confirmed complete
    refused: str = ""  #: cause of a refusal, such as PERMISSION; empty: none
    error: str = ""  #: the refusal in one line

    @property
    def micros(self) -> int:
        """The cost so far by list price, in micro-dollars, rounded up."""
        traffic = -(-self.progress.bytes * self.micros_per_gib // 2**30)
        return traffic + self.progress.objects * self.micros_per_object
