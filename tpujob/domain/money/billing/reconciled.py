"""What a bill and our ledger say of the same time: jobs, everything else on the bill, and why they differ. Pure data
and the sums over it."""

from dataclasses import dataclass
from typing import Literal

from tpujob.domain.money.billing.headings import Heading
from tpujob.domain.money.billing.tally import Tally

Match = Literal["label", "name", "hour"]

CENT = 10_000  #: micro-dollars
HOUR = 3600  #: chip-microseconds in a millionth of a chip-hour


@dataclass(frozen=True, slots=True)
class Period:
    """The time that is compared, in microseconds since the epoch."""

    start: int
    end: int  #: later rows may still be missing from the export


@dataclass(frozen=True, slots=True)
class JobLine:
    """The TPU time of one job. Amounts are micro-dollars."""

    job: str
    name: str
    matched: frozenset[Match]  #: how its rows were found; empty: the bill has none
    chip_time: int  #: chip-microseconds in the ledger
    unpriced: int  #: of those, with no known price: no estimate has them
    list: int  #: by list price
    estimate: int  #: of that, not covered by a grant
    billed: Tally

    @property
    def gap(self) -> int:
        return self.billed.net - self.estimate

    # Three parts of the gap, which add up to it

    @property
    def by_usage(self) -> int:
        """More or less time than in the ledger, at the ledger's rate."""
        ours = self.chip_time // HOUR
        if not ours or self.billed.unmeasured:
            return 0
        return round(self.list * self.billed.usage / ours) - self.list

    @property
    def by_rate(self) -> int:
        """The same time at another rate."""
        return self.billed.gross - self.list - self.by_usage

    @property
    def by_credits(self) -> int:
        """Grants and discounts of the bill, beside the grants of the ledger."""
        return self.billed.net - self.billed.gross + self.list - self.estimate

    def differs(self, tolerance: float) -> bool:
        """By more than a cent and more than that share of the larger amount. One without a price is not compared."""
        larger = max(abs(self.estimate), abs(self.billed.net))
        return not self.unpriced and abs(self.gap) > max(CENT, tolerance * larger)


@dataclass(frozen=True, slots=True)
class AllJobs(JobLine):
    """The sum of the lines of jobs. Its parts of the gap are the sums of theirs."""

    usage_gap: int

    @property
    def by_usage(self) -> int:
        return self.usage_gap


@dataclass(frozen=True, slots=True)
class OtherLine:
    """What is on the bill and is the TPU time of no job."""

    heading: Heading
    name: str  #: of the service, where the heading is many; else empty
    billed: Tally


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A bill beside the ledger. Jobs, others, `before` and `unsettled` add up to `billed`, to the micro-unit."""

    period: Period
    newest: int  #: when the newest row was exported
    jobs: tuple[JobLine, ...]  #: the largest gap first
    others: tuple[OtherLine, ...]
    before: Tally  #: rows of use before the period: late ones and corrections
    unsettled: Tally  #: rows of use after the period
    unsettled_estimate: int  #: what the ledger has after the period, not covered by a grant
    earlier_estimate: int  #: what the ledger has before it
    billed: Tally

    def differing(self, tolerance: float) -> list[JobLine]:
        return [line for line in self.jobs if line.differs(tolerance)]

    @property
    def tpu(self) -> AllJobs:
        whole = Tally()
        for line in self.jobs:
            whole.merge(line.billed)
        return AllJobs(
            job="",
            name="",
            matched=frozenset[Match]().union(*(line.matched for line in self.jobs)),
            chip_time=sum(line.chip_time for line in self.jobs),
            unpriced=sum(line.unpriced for line in self.jobs),
            list=sum(line.list for line in self.jobs),
            estimate=sum(line.estimate for line in self.jobs),
            billed=whole,
            usage_gap=sum(line.by_usage for line in self.jobs),
        )
