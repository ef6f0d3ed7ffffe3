"""Cloud Storage: what a GiB-month, an operation and a read of a colder class cost. Traffic is in `traffic.py`.

Deletions are free (documented). What the cloud gives away each month is taken off nowhere here.
"""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Final

from tpujob.domain.prices.rows import Price, Source

_PAGE = Source("cloud.google.com/storage/pricing", date(2026, 9, 20))
_LIST = Source("Cyclenerd's table of the Cloud Billing SKUs at 0166a59", date(2026, 9, 20))
_ASSUMED = Source("no list has this region: assumed as us-central1", date(2026, 9, 20), "low")

#: Dollars for a GiB-month of Standard storage. The page quotes $0.000027397 a GiB-hour, which is the first of them.
_STANDARD: Final = {
    "0.020": "us-central1 us-east1 us-east5 us-south1 us-west1 europe-north1 europe-west1 europe-west4 "
    "asia-east1 asia-southeast1",
    "0.021": "me-west1",
    "0.023": "us-east4 us-west2 us-west3 us-west4 northamerica-northeast1 europe-central2 europe-southwest1 "
    "europe-west2 europe-west3 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1 asia-south2 "
    "asia-southeast2 australia-southeast1",
    "0.025": "africa-south1 europe-west6",
    "0.026": "us eu asia",
    "0.030": "southamerica-west1",
    "0.035": "southamerica-east1",
    "0.044": "nam4 eur4",
}
_DUAL = "0.022 in each of two regions"
#: of us-central1; other regions were not captured
_COLDER = {"nearline": "0.010", "coldline": "0.004", "archive": "0.0012"}
_RETRIEVAL = {"nearline": "0.01", "coldline": "0.02", "archive": "0.05"}
_OPERATIONS = {"A": "0.0050", "B": "0.0004"}


def rows() -> Iterator[Price]:
    """Every known price of the tables."""
    for usd, places in _STANDARD.items():
        for place in places.split():
            source = _PAGE if place == "us-central1" else _LIST
            note = _DUAL if place in ("nam4", "eur4") else ""
            yield _stored("standard", place, usd, source, note)
    yield _stored("standard", "us-central2", "0.020", _ASSUMED)
    for kind, usd in _COLDER.items():
        yield _stored(kind, "us-central1", usd, _PAGE)
    for kind, usd in _RETRIEVAL.items():
        yield Price(f"retrieval {kind}", "", "", Decimal(usd), "GiB", _PAGE)
    for letter, usd in _OPERATIONS.items():
        note = "Standard storage in one region"
        yield Price(
            f"operations class {letter}", "", "", Decimal(usd), "operation", _PAGE, 1000, note=note
        )


def _stored(kind: str, place: str, usd: str, source: Source, note: str = "") -> Price:
    return Price(f"storage {kind}", place, "", Decimal(usd), "GiB-month", source, note=note)
