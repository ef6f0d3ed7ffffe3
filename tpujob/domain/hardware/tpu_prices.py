"""Prices of TPUs per chip-hour, by SKU and region. They include the machine of a TPU VM.

A slice is billed from the moment it is ready (documented); waiting in the cloud's queue is free.
"""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Final

from tpujob.domain.hardware.generations import GENERATIONS
from tpujob.domain.hardware.price_rows import ONE_YEAR, THREE_YEARS, Price, Source
from tpujob.domain.hardware.pricing import PRICINGS

#: spot prices in it move by 10 % and more within a quarter
_LIST = Source(
    "SkyPilot catalog v8 at 006059e0, made from the Cloud Billing SKUs", date(2026, 9, 20)
)
_DOUBTED = Source(_LIST.name, _LIST.as_of, "medium")
_SCHEDULED = Source(
    "public reports of the Cloud Billing Catalog (SKUs of DWS)", date(2026, 8, 6), "medium"
)
#: older than the list above
_COMMITTED = Source("gpuhunt's table of TPU prices", date(2024, 12, 1), "medium")

#: dollars for a chip-hour: on demand, spot, with a commitment of one and of three years. `-`: unpublished, or only
#: guessed, such as v3 pods in us-east1. Regions with an unknown price have no row: v6e in asia-east1,
#: southamerica-east1 and us-central2; v7x.
_TABLE: Final = """
v2 device   asia-east1               1.305     0.3915    0.8222  0.5873
v2 device   europe-west4             1.2375    0.315563  0.7796  0.5569
v2 device   us-central1              1.125     0.3375    -       -
v2 pod      europe-west4             1.5       0.3825    1.0395  0.7425
v2 pod      us-central1              1.5       0.3825    0.945   0.675
v3 device   europe-west4             2.2       0.561     1.386   0.99
v3 device   us-central1              2.0       0.51      -       -
v3 device   us-east1                 2.0       -         -       -
v3 pod      europe-west4             2.0       0.66      1.26    0.9
v4          us-central2              3.22      0.9215    2.0286  1.449
v5e         asia-east1               1.38948   0.55579   -       -
v5e         asia-northeast1          1.54104   0.4244    -       -
v5e         asia-southeast1          1.56      0.78      1.092   0.702
v5e         europe-north1            1.32132   0.66066   -       -
v5e         europe-west1             1.32132   0.52853   0.9249  0.5946
v5e         europe-west3             1.416     0.38997   -       -
v5e         europe-west4             1.56      0.44498   1.092   0.702
v5e         northamerica-northeast1  1.32132   0.36389   -       -
v5e         southamerica-west1       1.716     0.47259   -       -
v5e         us-central1              1.2       0.24493   0.84    0.54
v5e         us-east1                 1.2       0.24493   -       -
v5e         us-east4                 1.2       0.6       -       -
v5e         us-east5                 1.2       0.6       0.84    0.54
v5e         us-south1                1.416     0.5664    -       -
v5e         us-west1                 1.2       0.24493   0.84    0.54
v5e         us-west4                 1.2       0.48      0.84    0.54
v5p         europe-west1             4.459455  1.783783  -       -
v5p         europe-west4             4.2525    1.34849   -       -
v5p         us-central1              4.2       0.8357    -       -
v5p         us-east1                 4.2       0.8357    2.94    1.89
v5p         us-east5                 4.2       1.68      2.94    1.89
v5p         us-south1                4.779     1.316137  -       -
v6e         asia-northeast1          3.24      0.94352   2.27    1.46
v6e         asia-south1              3.24      -         -       -
v6e         asia-southeast1          2.97      0.36292   -       -
v6e         europe-west4             2.97      1.03748   2.08    1.34
v6e         southamerica-west1       2.7       -         -       -
v6e         us-central1              2.7       0.54421   -       -
v6e         us-east1                 2.7       0.54421   1.89    1.22
v6e         us-east4                 2.7       0.57766   -       -
v6e         us-east5                 2.7       1.215     1.89    1.22
v6e         us-south1                2.7       1.35      -       -
v6e         us-west1                 2.7       0.54421   -       -
"""

#: dollars for a chip-hour of terms that no list has; those of other regions are unknown
_ENDING: Final = """
v5e         us-west4                 flex-start  0.60
v6e         europe-west4             flex-start  1.35
v6e         us-east5                 flex-start  1.35
v6e         us-east5                 calendar    1.89
"""

_NOTES = {
    ("v2 pod", "europe-west4"): "an older list had 1.65 on demand",
    ("v5e", "us-south1"): "an older list had 1.20 on demand",
    ("v5p", "europe-west4"): "the source knows the zone from elsewhere",
    ("v6e", "asia-south1"): "the listed spot price is a commitment's, and left out",
    ("v6e", "southamerica-west1"): "the listed spot price is a placeholder, and left out",
}
_COLUMNS = ("on-demand", "spot", ONE_YEAR, THREE_YEARS)
CHIPS_OF_8_CORES = 4


def rows() -> Iterator[Price]:
    """Yield every known price of the table."""
    for line in _TABLE.strip().splitlines():
        sku, (region, *figures) = line[:11].strip(), line[11:].split()
        note = _NOTES.get((sku, region), "")
        listed = _DOUBTED if note else _LIST
        for pricing, figure in zip(_COLUMNS, figures, strict=True):
            if figure != "-":
                source = listed if pricing in PRICINGS else _COMMITTED
                usd = Decimal(figure)
                yield Price(
                    f"tpu {sku}", region, pricing, usd, "chip-hour", source,
                    quoted=quoted(sku, usd), note=note if source is listed else "",
                )  # fmt: skip
    for line in _ENDING.strip().splitlines():
        sku, region, pricing, figure = line.split()
        yield Price(f"tpu {sku}", region, pricing, Decimal(figure), "chip-hour", _SCHEDULED)


def quoted(sku: str, usd: Decimal) -> str:
    """Return the text of a chip-hour's price for a SKU that is sold by 8 cores; else empty."""
    chips = chips_per_unit(sku.partition(" ")[0])
    return f"${(usd * chips).normalize():f} for 8 cores an hour" if chips > 1 else ""


def chips_per_unit(generation: str) -> int:
    """Return the number of chips in Google's unit of sale: 8 cores of older generations, one chip of later ones."""
    row = GENERATIONS.get(generation)
    return CHIPS_OF_8_CORES if row and row.sold_by_8_cores else 1
