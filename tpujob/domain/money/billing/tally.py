"""Sums of rows of a bill: exact in each billing currency, converted once, at the end. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

from tpujob.domain.money.billing.charges import Charge

#: a currency and the export's rate to the US dollar
Rated = tuple[str, str]

#: how grants and trials pay; everything else is a discount
PROMOTION = "PROMOTION"


class Tally:
    """A sum of rows. Amounts are micro-units of each row's own currency."""

    __slots__ = ("cost", "credits", "rows", "unmeasured", "usage")

    def __init__(self) -> None:
        self.rows = 0
        self.usage = 0  #: of TPU time, millionths of a chip-hour
        self.unmeasured = 0  #: rows of TPU time that do not say how much
        self.cost: defaultdict[Rated, int] = defaultdict(int)
        self.credits: defaultdict[tuple[Rated, str], int] = defaultdict(int)

    def add(self, row: Charge, usage: int | None = 0) -> None:
        """`usage`: the TPU time of the row; None: it does not say."""
        rated = (row.currency, row.rate)
        self.rows += 1
        self.cost[rated] += row.cost
        for type, micros in row.credits:
            self.credits[rated, type] += micros
        if usage is None:
            self.unmeasured += 1
        else:
            self.usage += usage

    def merge(self, other: Tally) -> None:
        self.rows += other.rows
        self.usage += other.usage
        self.unmeasured += other.unmeasured
        for rated, micros in other.cost.items():
            self.cost[rated] += micros
        for key, micros in other.credits.items():
            self.credits[key] += micros

    def split(self, weights: Sequence[int]) -> list[Tally]:
        """The sum in parts of these weights, to the micro-unit; rows are counted in the first. The weights' sum is
        above 0."""
        parts = [Tally() for _ in weights]
        parts[0].rows, parts[0].unmeasured = self.rows, self.unmeasured
        for part, usage in zip(parts, _shares(self.usage, weights), strict=True):
            part.usage = usage
        for rated, micros in self.cost.items():
            for part, share in zip(parts, _shares(micros, weights), strict=True):
                part.cost[rated] = share
        for key, micros in self.credits.items():
            for part, share in zip(parts, _shares(micros, weights), strict=True):
                part.credits[key] = share
        return parts

    # In US dollars, each rounded to the micro-dollar -----------------------------------------------------------------

    @property
    def gross(self) -> int:
        """Before credits."""
        return _usd(self.cost.items())

    @property
    def promotions(self) -> int:
        return _usd((k[0], v) for k, v in self.credits.items() if k[1] == PROMOTION)

    @property
    def net(self) -> int:
        """What is to be paid: after every credit."""
        return _usd([*self.cost.items(), *((k[0], v) for k, v in self.credits.items())])

    # In each currency ------------------------------------------------------------------------------------------------

    def net_by_currency(self) -> dict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for (currency, _), micros in self.cost.items():
            found[currency] += micros
        for ((currency, _), _), micros in self.credits.items():
            found[currency] += micros
        return dict(found)

    def credits_by_type(self) -> dict[str, int]:
        """In micro-dollars."""
        types = sorted({type for _, type in self.credits})
        return {t: _usd((k[0], v) for k, v in self.credits.items() if k[1] == t) for t in types}


def _usd(amounts: Iterable[tuple[Rated, int]]) -> int:
    return round(sum((micros / Fraction(rate) for (_, rate), micros in amounts), Fraction()))


def _shares(amount: int, weights: Sequence[int]) -> Iterable[int]:
    """Shares that add up to the amount."""
    whole, reached, given = sum(weights), 0, 0
    for weight in weights:
        reached += weight
        share = amount * reached // whole - given
        given += share
        yield share
