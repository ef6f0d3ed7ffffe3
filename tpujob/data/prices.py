"""What Cloud Storage charges for copying, from one dated table. List prices in US dollars; pure."""

from __future__ import annotations

from decimal import Decimal

#: when the table was read, at cloud.google.com/storage/pricing
AS_OF = "2026-09-20"

#: 1,000 operations on a bucket of one region, Standard storage
CLASS_A = Decimal("0.0050")
CLASS_B = Decimal("0.0004")
#: GiB out of the cloud to the internet, the first 10 TiB of a month
INTERNET = Decimal("0.12")


def operations(class_a: int, class_b: int) -> Decimal:
    """Dollars for that many operations."""
    return (CLASS_A * class_a + CLASS_B * class_b) / 1000


def to_internet(size: int) -> Decimal:
    """Dollars for bytes that leave the cloud. Between a bucket and a machine of its region they are free."""
    return INTERNET * size / 2**30
