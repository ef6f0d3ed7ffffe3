"""What stands beside slices and buckets: addresses, boot disks, and a deployed backend's Cloud Run and Firestore.

What the cloud gives away each month is taken off nowhere here.
"""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

from tpujob.domain.prices.rows import ITEMS, Price, Source

_READ = date(2026, 9, 20)
_RUN = Source("cloud.google.com/run/pricing, tier 1", _READ)
_RUN_QUOTED = Source("cloud.google.com/run/pricing, as quoted", _READ, "medium")
_FIREBASE = Source("Firebase's price table, copies of several years", _READ)
_REGIONAL = Source("a guide of Airbyte's", _READ, "medium")
_HALF = Source("half of the price in several regions", _READ, "low")
_ADDRESSES = Source("a wiki that cites Google's page of 2026-10-16", date(2026, 10, 16), "medium")
_DISKS = Source("a manual for users of TPUs", _READ, "medium")
_SECRETS = Source("cloud.google.com/secret-manager/pricing", _READ)
_SCHEDULER = Source("cloud.google.com/scheduler/pricing", _READ)

_SEVERAL = ("nam5", "eur3")  #: locations of Firestore that are more than one region


def rows() -> Iterator[Price]:
    """Every known price of the tables."""
    yield _row("external address", "0.005", _ADDRESSES, pricing="on-demand")
    yield _row("external address", "0.0025", _ADDRESSES, pricing="spot")
    yield _row("boot disk", "0.0394524", _DISKS, note="pd-standard; a TPU VM has 100 GiB")
    yield _row("cloud run cpu", "0.000024", _RUN)
    yield _row("cloud run cpu, always on", "0.000018", _RUN)
    yield _row("cloud run memory", "0.0000025", _RUN)
    yield _row("cloud run memory, always on", "0.000002", _RUN_QUOTED)
    yield _row("cloud run requests", "0.40", _RUN)
    for kind, usd, source in (
        ("reads", "0.03", _REGIONAL),
        ("writes", "0.09", _REGIONAL),
        ("deletes", "0.01", _HALF),
    ):
        note = "taken for every single region"
        yield _row(f"firestore {kind}", usd, source, where="us-central1", note=note)
    for place in _SEVERAL:
        for kind, usd in (("reads", "0.06"), ("writes", "0.18"), ("deletes", "0.02")):
            yield _row(f"firestore {kind}", usd, _FIREBASE, where=place)
        yield _row("firestore storage", "0.18", _FIREBASE, where=place)
    yield _row("scheduler", "0.10", _SCHEDULER, note="three for each billing account are free")
    yield _row("secret versions", "0.06", _SECRETS, note="disabled versions count")
    yield _row("secret accesses", "0.03", _SECRETS)


def _row(
    name: str, usd: str, source: Source, *, where: str = "", pricing: str = "", note: str = ""
) -> Price:
    kind = ITEMS[name]
    return Price(name, where, pricing, Decimal(usd), kind.unit, source, kind.per, note=note)
