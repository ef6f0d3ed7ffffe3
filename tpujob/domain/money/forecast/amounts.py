"""What a forecast comes to in dollars, all lines of an estimate with it; and which of several places is best. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from typing import NamedTuple

from tpujob.domain.money.estimate import Use, estimate
from tpujob.domain.money.forecast.course import Forecast
from tpujob.domain.money.forecast.experience import Conditions
from tpujob.domain.money.forecast.met import Place
from tpujob.domain.money.forecast.throughput import Throughput
from tpujob.domain.prices import LIST, PriceList


class Micros(NamedTuple):
    """Micro-dollars that go with a `Range` of time."""

    low: int
    p10: int
    p50: int
    p90: int
    high: int


@dataclass(frozen=True, slots=True)
class Amounts:
    list: Micros
    pay: Micros  #: without what a grant pays for
    priced: bool  #: whether the slices are in it; without them it says next to nothing


def amounts(use: Use, found: Forecast, prices: PriceList = LIST) -> Amounts:
    """The estimate for each bound of the time for which slices are billed."""
    hours = (Decimal(str(round(seconds / 3600, 6))) for seconds in found.billed)
    each = [estimate(replace(use, hours=time), prices) for time in hours]
    return Amounts(
        Micros(*(one.list_micros for one in each)),
        Micros(*(one.pay_micros for one in each)),
        all(one.priced for one in each),
    )


class Outlook(NamedTuple):
    """What a job will probably take at one place, and come to."""

    hours: float  #: of steps
    forecast: Forecast
    conditions: Conditions
    amounts: Amounts

    @property
    def ends(self) -> bool:
        """Whether at least half of its courses do not fail."""
        return self.forecast.fails <= 0.5


@dataclass(frozen=True, slots=True)
class Way:
    """One place where a job may run."""

    place: Place
    throughput: Throughput | None  #: None: nobody knows how fast it goes there
    outlook: Outlook | None  #: None: the same


class Best(NamedTuple):
    cheapest: Place | None
    fastest: Place | None


def best(ways: Sequence[Way]) -> Best:
    """Of those that are known: the one of which half of all courses cost less than of any other, and the one of which
    half end sooner, without waits where one is not known; of several of these the cheaper one, then the first. A course
    that fails is no end: places where most do are not among them."""
    ending = [(way.outlook, way.place) for way in ways if way.outlook and way.outlook.ends]
    waits_known = not any("wait" in one.conditions.unknown for one, _ in ending)

    def cost(one: Outlook) -> tuple[float, float]:
        costs = one.amounts
        return (costs.pay.p50, costs.list.p50) if costs.priced else (math.inf, math.inf)

    def time(one: Outlook) -> tuple[float, ...]:
        found = one.forecast
        return (found.wall if waits_known else found.billed).p50, *cost(one)

    paid = [(cost(one), place) for one, place in ending if one.amounts.priced]
    timed = [(time(one), place) for one, place in ending]
    return Best(
        min(paid, key=itemgetter(0), default=(None, None))[1],
        min(timed, key=itemgetter(0), default=(None, None))[1],
    )
