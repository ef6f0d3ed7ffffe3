"""Google's billing exports, read from files: CSV and JSON, compressed or not, one row after the other in constant
memory. What a row means and whose it is, is decided in `domain/money/billing/`; nothing is fetched and nothing kept."""

from tpujob.billing.imports import Imported, read_into

__all__ = ["Imported", "read_into"]
