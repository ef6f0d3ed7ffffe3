"""How a line is made: an amount times its price; what is not known, or free, with the reason."""

from dataclasses import dataclass
from decimal import Decimal

from tpujob.domain.hardware.accelerators import Accelerator
from tpujob.domain.money.estimate.shapes import Kind, Line, Use
from tpujob.domain.prices import Price, PriceList, micros
from tpujob.domain.text import many


@dataclass(frozen=True, slots=True)
class Sought:
    """What the lines are made of."""

    use: Use
    prices: PriceList
    facts: Accelerator
    hours: Decimal

    @property
    def chips(self) -> int:
        return self.facts.chips * self.use.slices

    @property
    def hosts(self) -> int:
        return self.facts.hosts * self.use.slices

    @property
    def time(self) -> str:
        return f"{number(self.hours)} h"

    @property
    def machines(self) -> str:
        return many(self.hosts, "host")


def line(
    kind: Kind, what: str, formula: str, amount: Decimal | int, price: Price | None, note: str = ""
) -> Line:
    """An amount times its price; what has no price is not known."""
    amount = Decimal(amount)
    if price is None:
        return Line(kind, what, formula, amount, None, None, None, note or "no price is known")
    cost = micros(price.of(amount))
    return Line(kind, what, formula, amount, price, cost, cost, note)


def unsaid(kind: Kind, what: str, option: str) -> Line:
    return Line(kind, what, "", None, None, None, None, f"nobody said: {option}")


def free(kind: Kind, what: str, note: str) -> Line:
    return Line(kind, what, "", None, None, 0, 0, note)


def number(amount: Decimal) -> str:
    """`3`, `2.5`, `1,200`; four decimals at most."""
    return f"{round(amount, 4).normalize():,f}"
