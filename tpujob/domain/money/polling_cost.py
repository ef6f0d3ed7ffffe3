"""The cost of polling: how long one list of the hosts' reports serves, so that lists cost little. Pure.

A list is one operation of class A for each page (cloud.google.com/storage/pricing).
"""

from tpujob.domain.hardware.prices import HOURS_A_MONTH, LIST, PriceList

#: objects on a page of a list (the JSON API's maximum for a page with metadata)
PAGE = 1000
#: seconds for which one list serves all ticks, for each page of all lists
LASTS = 2.0
#: the largest product of LASTS and pages, in seconds
MAX_LAST_S = 10.0
#: the smallest seconds between two lists that no tick asks for
UNASKED = 4.0
#: US dollars that all lists may cost in a month, however many pages there are
MAX_USD = 60


def seconds_between_lists(pages: int, prices: PriceList = LIST) -> float:
    """Return the seconds for which a list serves if all lists together have `pages` pages."""
    pages = max(1, pages)
    within_limit = float(prices.usd_of_operations(pages, 0)) * HOURS_A_MONTH * 3600 / MAX_USD
    return max(min(MAX_LAST_S, LASTS * pages), within_limit)
