"""What Google Cloud charges: dated tables with their sources, and the list that looks a price up. Estimates, no bill.

Amounts are exact (`Decimal` dollars, whole micro-dollars). An unpublished price is None, never 0. Nothing here
reads a file: a user's own prices come from `config/prices.py`. What a job costs is in `money/`.
"""

from tpujob.domain.prices.lint import Flaw, flaws
from tpujob.domain.prices.pricelist import LIST, PriceList
from tpujob.domain.prices.rows import (
    GIB,
    HOURS_A_MONTH,
    Price,
    Pricing,
    Source,
    micros,
    sku_of,
)

__all__ = [
    "GIB",
    "HOURS_A_MONTH",
    "LIST",
    "Flaw",
    "Price",
    "PriceList",
    "Pricing",
    "Source",
    "flaws",
    "micros",
    "sku_of",
]
