"""The data that a job reads, and the copies that bring objects into the region of a slice. Data only.

What is wanted where is decided in `capacity/datasets.py`, when a copy is made in `decide/copying.py`; the storage
itself moves the bytes. Every place is a `gs://` prefix without a slash at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Dataset:
    """One entry of `data` in a job file."""

    name: str
    source: str  #: as the job file says it; any scheme
    base: str  #: what copies are made of: the source itself, or its upload at the job's submission
    location: str  #: of `base`: a region, or a continent such as `us`
    local: tuple[str, ...]  #: regions in which reading `base` is free
    at: Mapping[str, str]  #: by region: where jobs there read it; `base`: nothing is copied


@dataclass(frozen=True, slots=True)
class Saved:
    """What of a workdir follows its job: the newest checkpoint that may be resumed from, any later one, and the
    outputs; or, where the program reports no step, everything but logs and reports."""

    step: int | None  #: the newest that is known to be committed; None: the program tells none
    before: int = 0  #: only a checkpoint of an earlier step may be resumed from; 0: any


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy has come. Names are paths below the prefix."""

    below: tuple[str, ...] = ()  #: folders that are copied, in the order of names; empty: all
    after: str = ""  #: all up to this name are at the target
    beyond: tuple[str, ...] = ()  #: copied already, and counted, though they come after that name
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])  #: rewrites under way
    objects: int = 0  #: copied so far, as are the bytes
    bytes: int = 0
    same: int = 0  #: found at the target, of this copy or another one
    same_bytes: int = 0
    total: int | None = None  #: objects at the source when it began; None: too many to count first
    total_bytes: int | None = None
    passes: int = 0  #: through all names that are complete; each after the first looks for changes
    moved: bool = False  #: something was copied in this pass
    whole: bool = False  #: a pass found every object of the source at the target

    @property
    def there(self) -> int:
        """Bytes that are at the target."""
        return self.bytes + self.same_bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """Objects below one prefix that are wanted below another. Rates are in micro-dollars, as they were at the start."""

    id: str  #: the same for the same wish: what, for which region, after which attempt
    name: str  #: for people
    source: str
    target: str
    region: str  #: of the target
    started_at: float
    micros_per_gib: int  #: for bytes that leave the source's region
    micros_per_object: int
    saved: Saved | None = None  #: of a workdir, what follows the job; None: all is copied
    progress: CopyProgress = field(default_factory=CopyProgress)
    done_at: float | None = None  #: seen to be whole
    refused: str = ""  #: the cause, such as PERMISSION; empty: it was not refused
    error: str = ""  #: what was refused, in one line

    @property
    def micros(self) -> int:
        """What it has cost so far by list price, in micro-dollars, rounded up."""
        traffic = -(-self.progress.bytes * self.micros_per_gib // 2**30)
        return traffic + self.progress.objects * self.micros_per_object
