"""The terms on which slices are requested, a row each. Rules ask for a property of the row, and compare no names.

Another pricing is a row here, its prices (`tpu_prices.py`), and its fields of the requests that an adapter sends.
Imports the standard library only, as the emulator reads the table, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pricing:
    """The terms of a request for a slice."""

    name: str  #: as users write it
    quota: str  #: the name of the pricing whose quota its slices draw from
    preemptible: bool = False  #: the cloud may take a slice back at any time, and changes the price
    ends_by_itself: bool = False  #: the cloud takes a slice back at a time that is known before
    waits_in_queue: bool = True  #: False: the capacity is held for the project
    priced_as: str = ""  #: whose price holds where the list has none of its own; empty: none
    usual: bool = False  #: what lists of slices do not mention
    takes_run_for: bool = False  #: a request says for how long its slice runs (`tpu.run_for`)
    needs_reservation: bool = False  #: a request names its reservation (`tpu.reservation`)
    generations: tuple[str, ...] = ()  #: known ones that are offered so; empty: all


#: Google documents flex-start and calendar reservations for these alone
_SCHEDULED = ("v5e", "v5p", "v6e")

#: the longest and the shortest `tpu.run_for`: Cloud TPU documents the first, Compute Engine the second
RUN_FOR = ("7d", "10m")

_ROWS = (
    Pricing("spot", quota="spot", preemptible=True),
    Pricing("on-demand", quota="on-demand", usual=True),
    Pricing("reserved", quota="reserved", waits_in_queue=False, priced_as="on-demand"),
    Pricing(
        "flex-start",
        quota="spot",
        ends_by_itself=True,
        takes_run_for=True,
        generations=_SCHEDULED,
    ),
    Pricing(
        "calendar",
        quota="reserved",
        ends_by_itself=True,
        waits_in_queue=False,
        needs_reservation=True,
        generations=_SCHEDULED,
    ),
)
PRICINGS: Mapping[str, Pricing] = {row.name: row for row in _ROWS}


def find_pricing(name: str) -> Pricing:
    """Return the terms of that name. Terms that this version lacks, as in the records of a later one, count as neither
    preemptible nor held, with a quota of their own and no price."""
    return PRICINGS.get(name) or Pricing(name, quota=name)
