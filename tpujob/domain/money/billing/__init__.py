"""Google's bill beside our ledger: what one row of a billing export says, which slice or heading it belongs to, and
where bill and ledger differ. Pure, and in whole micro-units of the billing currency, so that the parts add up to the
bill. Files are read in `tpujob/billing/`; what our own slices have cost is in `domain/money/ledger.py`.
"""

from tpujob.domain.money.billing.book import Book
from tpujob.domain.money.billing.charges import BadCharge, Charge, charge, digest
from tpujob.domain.money.billing.headings import Heading
from tpujob.domain.money.billing.reconciled import JobLine, OtherLine, Period, Reconciled
from tpujob.domain.money.billing.slices import LedgerSlice

__all__ = [
    "BadCharge",
    "Book",
    "Charge",
    "Heading",
    "JobLine",
    "LedgerSlice",
    "OtherLine",
    "Period",
    "Reconciled",
    "charge",
    "digest",
]
