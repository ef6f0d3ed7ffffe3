"""The shapes of an estimate: the expected use of a job, the lines of its cost, and their sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from tpujob.domain.hardware.prices import Price
from tpujob.domain.model import Grant
from tpujob.domain.money.ledger import Where


class CostKind(StrEnum):
    """The kinds of cost, in the order in which their lines are shown."""

    SLICES = "slices"
    MACHINES = "machines"
    STORAGE = "storage"
    OPERATIONS = "operations"
    TRAFFIC = "traffic"
    CONTROL = "control plane"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of a context that add to the bills of its jobs."""

    external_ips: bool = True
    report_every: float = 60.0  #: seconds between two reports of a host
    #: how Cloud Run runs the backend; empty: it runs elsewhere
    cloud_run: Literal["", "always", "called"] = ""
    firestore: bool = False
    emulated: bool = False  #: jobs run on the emulator: list prices are shown, and nothing is paid


@dataclass(frozen=True, slots=True)
class DataToCopy:
    """The part of a data set that a region lacks, to be copied before a slice is requested in the region."""

    name: str
    location: str  #: location of the source
    region: str
    objects: int = 0
    bytes: int = 0
    problem: str = ""  #: why the data cannot be read; its size is unknown then


@dataclass(frozen=True, slots=True)
class Use:
    """The expected use of a job. None: not stated."""

    type: str
    zone: str
    pricing: str
    location: str  #: location of the job's bucket: a region, or a continent
    slices: int = 1  #: number of slices that run together
    #: hours for which slices are ready, with preemptions; None: the estimate is of one hour
    hours: Decimal | None = None
    grants: tuple[Grant, ...] = ()
    #: chips of these grants that pay for other slices now
    granted_in_use: Mapping[Where, int] = field(default_factory=dict[Where, int])
    prints: bool = True  #: whether the program writes output all the time
    stored_gib: Decimal | None = None  #: checkpoints, logs and data that stay in the bucket
    stored_days: Decimal | None = None
    objects_written: int | None = None  #: checkpoints and results that the program writes
    objects_read: int | None = None
    read_gib: Decimal | None = None  #: GiB that the program reads from its bucket
    written_gib: Decimal | None = None
    copies: tuple[DataToCopy, ...] = ()  #: made once, before the first slice
    around: Surroundings = Surroundings()


@dataclass(frozen=True, slots=True)
class EstimateLine:
    """The cost of one thing that the job uses."""

    kind: CostKind
    what: str
    formula: str = ""  #: how the amount is made: `8 chips x 3 h`
    amount: Decimal | None = None  #: in units of the price; None: not stated, or free
    price: Price | None = None  #: None: unknown, or nothing is to be paid
    list_micros: int | None = None  #: micro-dollars by list price; None: unknown
    pay_micros: int | None = None  #: micro-dollars to be paid; None: unknown
    note: str = ""  #: a remark, such as why the cost is unknown or 0

    @property
    def known(self) -> bool:
        return self.list_micros is not None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a job by list price, and the part that is paid."""

    use: Use
    lines: tuple[EstimateLine, ...]

    @property
    def list_micros(self) -> int:
        """The sum of the known lines: a lower bound if `unknown` has any."""
        return sum(line.list_micros or 0 for line in self.lines)

    @property
    def pay_micros(self) -> int:
        """The sum of the known lines, without slices that a grant pays for."""
        return sum(line.pay_micros or 0 for line in self.lines)

    def unpaid(self) -> Estimate:
        """Return the same estimate with nothing to pay."""
        return replace(self, lines=tuple(replace(line, pay_micros=0) for line in self.lines))

    @property
    def unknown(self) -> tuple[EstimateLine, ...]:
        """The lines without a known cost; no sum has them."""
        return tuple(line for line in self.lines if not line.known)

    @property
    def priced(self) -> bool:
        """Whether the sums include the slices themselves; without them the sums mean little."""
        return all(line.known for line in self.lines if line.kind is CostKind.SLICES)

    def pay_of(self, kind: CostKind) -> int:
        """Return the micro-dollars to be paid of the known lines of one kind."""
        return sum(line.pay_micros or 0 for line in self.lines if line.kind is kind)
