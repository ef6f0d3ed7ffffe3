"""Lists of jobs: which jobs match, in which order they come, and the key by which a page says where it ended. Pure.

Filters and orders act over all jobs. Some columns move with time, so a job may change its place between two pages: a
key names the order as it was kept when the list began, and says by value and number where to go on when that is lost.
What a row shows is made in `service/board/rows.py`.
"""

from tpujob.domain.listing.asked import Wanted, wanted
from tpujob.domain.listing.keys import COLUMNS, FIXED, MOVING, PASSING, Key
from tpujob.domain.listing.order import (
    Listed,
    alike,
    comes_after,
    narrowed,
    ordered,
    value,
)

__all__ = [
    "COLUMNS",
    "FIXED",
    "MOVING",
    "PASSING",
    "Key",
    "Listed",
    "Wanted",
    "alike",
    "comes_after",
    "narrowed",
    "ordered",
    "value",
    "wanted",
]
