"""The prices of Google Cloud: exports the dated tables and their look-ups to other rooms. Estimates, no bills.

Amounts are exact (`Decimal` dollars, whole micro-dollars). An unpublished price is None, never 0. `config/prices.py`
reads the user's own prices.
"""

from tpujob.domain.hardware.price_check import Flaw, flaws
from tpujob.domain.hardware.price_list import LIST, PriceList
from tpujob.domain.hardware.price_rows import (
    GIB,
    HOURS_A_MONTH,
    Price,
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
    "Source",
    "flaws",
    "micros",
    "sku_of",
]
