"""Google's bill beside our ledger: export files are loaded into a temporary SQLite database, and matched and added up
there. What our own slices cost is in `domain/money/ledger.py`; nothing is fetched from the cloud."""

from tpujob.billing.matcher import LedgerSlice, reconcile
from tpujob.billing.totals import JobLine, OtherLine, Reconciled, Totals

__all__ = ["JobLine", "LedgerSlice", "OtherLine", "Reconciled", "Totals", "reconcile"]
