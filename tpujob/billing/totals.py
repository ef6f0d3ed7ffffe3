"""What a bill and the ledger say of the same time. Amounts are whole micro-dollars; a total is the sum of its lines."""

from collections import Counter
from dataclasses import dataclass, field

CENT = 10_000  #: micro-dollars
HOUR = 3600  #: chip-microseconds in a millionth of a chip-hour


@dataclass(slots=True)
class Totals:
    """The sum of rows of the bill."""

    rows: int = 0
    usage: int = 0  #: of TPU time, millionths of a chip-hour
    unmeasured: int = 0  #: rows of TPU time without an amount
    gross: int = 0  #: before credits
    promotions: int = 0  #: how grants and trials pay; as a rule below 0
    discounts: int = 0  #: all other credits
    by_currency: Counter[str] = field(default_factory=Counter[str])  #: net, in its micro-units

    @property
    def net(self) -> int:
        """What is to be paid."""
        return self.gross + self.promotions + self.discounts

    def add(self, other: "Totals") -> None:
        for name in ("rows", "usage", "unmeasured", "gross", "promotions", "discounts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for currency, micros in other.by_currency.items():
            self.by_currency[currency] += micros


@dataclass(slots=True)
class JobLine:
    """The TPU time of one job, or of all jobs. The gap is the sum of its three parts."""

    job: str
    name: str
    #: of `name`, `label`, `hour`: how rows were found
    matched: set[str] = field(default_factory=set[str])
    chip_time: int = 0  #: chip-microseconds in the ledger
    unpriced: int = 0  #: of those, at an unknown price; no estimate includes them
    list: int = 0  #: by list price
    estimate: int = 0  #: of that, not covered by a grant
    billed: Totals = field(default_factory=Totals)
    by_usage: int = 0  #: more or less time than in the ledger, at the ledger's rate

    def compare_usage(self) -> None:
        ours = self.chip_time // HOUR
        if ours and not self.billed.unmeasured:
            self.by_usage = round(self.list * self.billed.usage / ours) - self.list

    def add(self, other: "JobLine") -> None:
        self.matched |= other.matched
        for name in ("chip_time", "unpriced", "list", "estimate", "by_usage"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.billed.add(other.billed)

    @property
    def gap(self) -> int:
        return self.billed.net - self.estimate

    @property
    def by_rate(self) -> int:
        """The same time at another rate."""
        return self.billed.gross - self.list - self.by_usage

    @property
    def by_credits(self) -> int:
        """Grants and discounts of the bill, beside the grants of the ledger."""
        return self.billed.net - self.billed.gross + self.list - self.estimate

    def differs(self, tolerance: float) -> bool:
        """True if the gap exceeds a cent and that share of the larger amount. An unpriced job is not compared."""
        larger = max(abs(self.estimate), abs(self.billed.net))
        return not self.unpriced and abs(self.gap) > max(CENT, tolerance * larger)


@dataclass(frozen=True, slots=True)
class OtherLine:
    """Costs that are not the TPU time of a job."""

    category: str
    name: str  #: of a service or job, where the category has many; else empty
    billed: Totals


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A bill beside the ledger. Jobs, others, `before` and `unsettled` add up to `billed`. Times are microseconds."""

    start: int  #: of the time that is compared
    end: int  #: rows of later use may still be missing from the export
    newest: int  #: when the newest row was exported
    duplicates: int  #: rows that an earlier file had already
    jobs: tuple[JobLine, ...]  #: the largest gap first
    others: tuple[OtherLine, ...]
    before: Totals  #: rows of use before the period: late ones and corrections
    unsettled: Totals  #: rows of use after it
    unsettled_estimate: int  #: in the ledger after the period, not covered by a grant
    earlier_estimate: int  #: in the ledger before it
    tpu: JobLine  #: the sum of `jobs`
    billed: Totals

    def differing(self, tolerance: float) -> list[JobLine]:
        return [line for line in self.jobs if line.differs(tolerance)]
