"""What an estimate is made of: what a job will take, the lines of its cost, and their sums. Data, no prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from tpujob.domain.hardware.prices import Price, Pricing
from tpujob.domain.model import Grant
from tpujob.domain.money.ledger import Where


class CostKind(StrEnum):
    """What a line is about, in the order in which they are shown."""

    SLICES = "slices"
    MACHINES = "machines"
    STORAGE = "storage"
    OPERATIONS = "operations"
    TRAFFIC = "traffic"
    CONTROL = "control plane"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a context adds to the bill of its jobs."""

    external_ips: bool = True
    report_every: float = 60.0  #: seconds between two reports of a host
    cloud_run: Literal["", "always", "called"] = ""  #: where the backend runs; empty: not there
    firestore: bool = False
    secrets: bool = False  #: the keys of slices are in Secret Manager
    emulated: bool = False  #: jobs run on the emulator: list prices are shown, and nothing is paid


@dataclass(frozen=True, slots=True)
class DataToCopy:
    """What a region lacks of a data set before a slice is asked for there."""

    name: str
    location: str  #: of the source
    region: str
    objects: int = 0
    bytes: int = 0
    problem: str = ""  #: why the data cannot be read; then its size is not known


@dataclass(frozen=True, slots=True)
class Use:
    """What a job will take. None: not stated."""

    type: str
    zone: str
    pricing: Pricing
    location: str  #: of the job's bucket: a region, or a continent
    slices: int = 1  #: that run together
    #: for which slices are ready, preemptions and all; None: the estimate is of one hour
    hours: Decimal | None = None
    grants: tuple[Grant, ...] = ()
    #: chips of these grants that pay for other slices now
    granted_in_use: Mapping[Where, int] = field(default_factory=dict[Where, int])
    prints: bool = True  #: whether the program writes output all the time
    stored_gib: Decimal | None = None  #: in the bucket: checkpoints, logs, data of its own
    stored_days: Decimal | None = None
    objects_written: int | None = None  #: by the program: checkpoints and results
    objects_read: int | None = None
    read_gib: Decimal | None = None  #: by the program, from its bucket
    written_gib: Decimal | None = None
    copies: tuple[DataToCopy, ...] = ()  #: made once, before the first slice
    around: Surroundings = Surroundings()


@dataclass(frozen=True, slots=True)
class EstimateLine:
    """One thing that the job takes."""

    kind: CostKind
    what: str
    formula: str  #: how the amount is made: `8 chips x 3 h`
    amount: Decimal | None  #: in units of the price; None: not stated
    price: Price | None  #: None: not known, or there is nothing to pay for
    list_micros: int | None  #: None: not known
    pay_micros: int | None
    note: str = ""  #: why it is not known, or why it costs nothing

    @property
    def known(self) -> bool:
        return self.list_micros is not None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job will cost by list price, and what is paid for it."""

    use: Use
    lines: tuple[EstimateLine, ...]

    @property
    def list_micros(self) -> int:
        """The sum of what is known: a lower bound unless `whole`."""
        return sum(line.list_micros or 0 for line in self.lines)

    @property
    def pay_micros(self) -> int:
        """The same without what a grant pays for."""
        return sum(line.pay_micros or 0 for line in self.lines)

    def unpaid(self) -> Estimate:
        """The same where nothing is paid."""
        return replace(self, lines=tuple(replace(one, pay_micros=0) for one in self.lines))

    @property
    def unknown(self) -> tuple[EstimateLine, ...]:
        """What is in no sum."""
        return tuple(line for line in self.lines if not line.known)

    @property
    def priced(self) -> bool:
        """Whether the slices themselves are in the sums; without them the sums mean little."""
        return all(line.known for line in self.lines if line.kind is CostKind.SLICES)

    def of(self, kind: CostKind) -> int:
        """Micro-dollars by list price of the lines of one kind, as far as known."""
        return sum(line.list_micros or 0 for line in self.lines if line.kind is kind)
