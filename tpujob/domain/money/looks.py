"""How the reports of hosts are looked at for the least money: all by one list, or each object by its name. Pure.

A list is an operation of class A for each page, the metadata of one object an operation of class B
(cloud.google.com/storage/pricing); a request for an object that is not there is free.
"""

from decimal import Decimal

from tpujob.domain.prices import PriceList

#: objects of a slice of several hosts that are looked at: whoever speaks first, and whoever comes after that one
FIRST = 2
#: seconds after which all that there is is listed anew, although the known objects seem to say everything
WHOLE = 120.0
#: objects on a page of a list (the JSON API's maximum for a page with metadata)
PAGE = 1000
#: seconds for which one list serves all ticks, for each page of all of them; and the most
LASTS, LONGEST = 2.0, 10.0
#: seconds for which objects that were looked at by name serve, at least
BY_NAME_LASTS = 4.0


def list_lasts(pages: int) -> float:
    """Seconds for which a list serves, the longer, the more pages are listed: each page costs."""
    return min(LONGEST, LASTS * max(1, pages))


def by_name_lasts(pages: int) -> float:
    """The same for objects that were looked at by name."""
    return max(BY_NAME_LASTS, list_lasts(pages))


def by_name(objects: int, pages: int, *, of_all: int, prices: PriceList) -> bool:
    """Whether so many objects are looked at by name, as a list of so many pages costs more: `objects` x class B every
    `by_name_lasts` against `pages` x class A every `list_lasts`. `of_all`: pages that are listed everywhere."""
    reads = prices.usd_of_operations(0, objects) / Decimal(by_name_lasts(of_all))
    lists = prices.usd_of_operations(pages, 0) / Decimal(list_lasts(of_all))
    return reads < lists
