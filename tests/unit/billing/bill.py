"""A biller of its own: makes the rows of a billing export from what slices did. Shares no code with the product, so
that a mistake in one of them shows."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HOUR = 3600.0
DAY = 24 * HOUR
START = datetime(
    2026, 8, 1, 7, tzinfo=UTC
).timestamp()  #: midnight of the Pacific, where invoices begin

CREDIT_TYPES = (
    "FEE_UTILIZATION_OFFSET", "COMMITTED_USAGE_DISCOUNT", "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE", "DISCOUNT",
    "FREE_TIER", "PROMOTION", "RESELLER_MARGIN", "SUBSCRIPTION_BENEFIT", "SUSTAINED_USAGE_DISCOUNT",
)  # fmt: skip

#: generation: description of the SKU, service, chips per unit
SKUS = {
    "v2": ("Tpu-v2 Pod", "Cloud TPU", 4),
    "v3": ("Tpu-v3 Pod", "Cloud TPU", 4),
    "v4": ("Tpu-v4 Pod", "Cloud TPU", 4),
    "v5e": ("TpuV5e", "Compute Engine", 1),
    "v5p": ("TpuV5p", "Compute Engine", 1),
    "v6e": ("TpuV6e", "Compute Engine", 1),
}


@dataclass(frozen=True)
class Use:
    """What one slice did, as the cloud knows it."""

    job: str
    slice: str
    generation: str
    zone: str
    spot: bool
    chips: int
    start: float
    end: float
    usd_per_chip_hour: str  #: decimal
    promotion: str = "0"  #: the share that a grant pays, decimal
    labelled: bool = True
    named: bool = False  #: the detailed export names it
    owner: str = "lab-x"


def stamp(seconds: float) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime(
        "%Y-%m-%d %H:%M:%S.%f UTC"
    )


def blank(at: float, **more: Any) -> Row:
    """A row of nothing in particular, with every column of the detailed export."""
    month = datetime.fromtimestamp(at - 7 * HOUR, UTC).strftime("%Y%m")
    row: Row = {
        "billing_account_id": "0123AB-4567CD-89EF01",
        "service": {"id": "95FF-2EF5-5EA1", "description": "Cloud Storage"},
        "sku": {"id": "E5F0-6A5D-7BAD", "description": "Standard Storage US Regional"},
        "usage_start_time": stamp(at),
        "usage_end_time": stamp(at + HOUR),
        "project": {"id": "lab", "number": "12", "name": "Lab", "labels": [], "ancestors": []},
        "labels": [],
        "system_labels": [],
        "location": {"location": "us-central1", "country": "US", "region": "us-central1", "zone": None},
        "tags": [],
        "transaction_type": "GOOGLE",
        "export_time": stamp(at + 16 * HOUR),
        "cost": 0.0,
        "currency": "USD",
        "currency_conversion_rate": 1.0,
        "usage": {"amount": 0.0, "unit": "byte-seconds", "amount_in_pricing_units": 0.0,
                  "pricing_unit": "gibibyte month"},
        "credits": [],
        "invoice": {"month": month, "publisher_type": "GOOGLE"},
        "cost_type": "regular",
        "adjustment_info": {"id": None, "description": None, "type": None, "mode": None},
        "cost_at_list": None,
        "price": {"list_price": None, "effective_price": None, "tier_start_amount": 0.0},
        "resource": {"name": None, "global_name": None},
        "subscription": {"instance_id": None},
        "consumption_model": {"id": None, "description": None},
    }  # fmt: skip
    return row | more


def labels(pairs: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs.items()]


def rows_of(use: Use) -> Iterator[Row]:
    """One row for each clock hour in which the slice was ready. Preempted within its first minute, spot is free."""
    if use.spot and use.end - use.start < 60:
        return
    at = use.start // HOUR * HOUR
    while at < use.end:
        seconds = min(use.end, at + HOUR) - max(use.start, at)
        yield _row_of(use, at, seconds)
        at += HOUR


def _row_of(use: Use, at: float, seconds: float) -> Row:
    description, service, chips = SKUS[use.generation]
    units = Decimal(use.chips) * Decimal(seconds) / 3600 / chips
    cost = units * chips * Decimal(use.usd_per_chip_hour)
    row = blank(at)
    words = f"Preemptible {description}" if use.spot else description
    region = use.zone.rpartition("-")[0]
    row["service"] = {"id": "E000-3F24-B8AA", "description": service}
    row["sku"] = {"id": f"SKU-{use.generation}", "description": f"{words} running in {region}"}
    row["location"] = {"location": region, "country": "US", "region": region, "zone": use.zone}
    row["cost"] = float(cost)
    row["usage"] = {"amount": float(units) * 3600, "unit": "seconds",
                    "amount_in_pricing_units": float(units), "pricing_unit": "hour"}  # fmt: skip
    if use.labelled:
        row["labels"] = labels({"tpujob": "1", "tpujob-job": use.job, "tpujob-owner": use.owner})
    if use.named:
        row["resource"] = {
            "name": use.slice,
            "global_name": f"//tpu.googleapis.com/projects/1/locations/{use.zone}/nodes/{use.slice}",
        }
    if Decimal(use.promotion):
        amount = -float(cost * Decimal(use.promotion))
        row["credits"] = [credit("PROMOTION", amount)]
    return row


def credit(type: str, amount: float) -> Row:
    return {
        "id": f"{type.lower()}-1",
        "full_name": type.title(),
        "type": type,
        "name": type.lower(),
        "amount": amount,
    }


# Noise ---------------------------------------------------------------------------------------------------------------


@dataclass
class Noise:
    """Rows of everything else that stands on a bill."""

    random: random.Random
    currency: tuple[str, float] = ("USD", 1.0)
    days: int = 28
    rows: list[Row] = field(default_factory=list[Row])

    def make(self, count: int) -> list[Row]:
        kinds = (
            self._storage,
            self._service,
            self._tax,
            self._rounding,
            self._adjustment,
            self._correction,
            self._late,
            self._reservation,
            self._neighbour,
            self._old,
            self._unknown_columns,
            self._commitment,
        )
        for number in range(count):
            kinds[number % len(kinds)]()
        for row in self.rows:
            row["currency"], row["currency_conversion_rate"] = self.currency
        return self.rows

    def _at(self) -> float:
        return START + self.random.randrange(self.days * 24) * HOUR

    def _cost(self) -> float:
        return (
            self.random.choice((1, 1, 1, 0))
            * self.random.random()
            * 10 ** self.random.randint(-7, 2)
        )

    def _new(self, **more: Any) -> Row:
        row = blank(self._at(), cost=self._cost(), **more)
        if self.random.random() < 0.4:
            row["credits"] = [
                credit(type, -row["cost"] * self.random.random() / 3)
                for type in self.random.sample(CREDIT_TYPES, self.random.randint(1, 3))
            ]
        self.rows.append(row)
        return row

    def _storage(self) -> None:
        state = self.random.choice(("live", "noncurrent", "soft_deleted", "multipart"))
        row = self._new(system_labels=labels({"storage.googleapis.com/object_state": state}))
        if self.random.random() < 0.5:
            row["sku"] = {"id": "A", "description": "Regional Standard Class A Operations"}

    def _service(self) -> None:
        name = self.random.choice(
            ("Cloud Run", "Cloud Firestore", "BigQuery", "Vertex AI", "Networking")
        )
        self._new(
            service={"id": "S", "description": name}, sku={"id": "s", "description": "Something"}
        )

    def _tax(self) -> None:
        self._new(cost_type="tax", project={"id": None}, location={}, usage={})

    def _rounding(self) -> None:
        self._new(cost_type="rounding_error")["cost"] = self.random.choice(
            (0.0000005, -0.0000005, 0.0049)
        )

    def _adjustment(self) -> None:
        self._new(
            cost_type="adjustment",
            adjustment_info={"id": "a1", "type": "GOODWILL", "mode": "MANUAL_ADJUSTMENT"},
        )["cost"] *= -1

    def _correction(self) -> None:
        """The old row repeated negative, and a new one, in a later month."""
        old = self._new()
        info = {
            "id": "c1",
            "type": "USAGE_CORRECTION",
            "mode": "COMPLETE_NEGATION_WITH_REMONETIZATION",
        }
        later = {
            "invoice": {"month": "202609"},
            "adjustment_info": info,
            "export_time": stamp(START + 40 * DAY),
        }
        self.rows.append(old | later | {"cost": -old["cost"], "credits": []})
        self.rows.append(old | later | {"cost": old["cost"] / 3, "credits": []})

    def _late(self) -> None:
        at = START - self.random.randrange(1, 200) * HOUR
        row = blank(at, cost=self._cost(), invoice={"month": "202608"})
        self.rows.append(row)

    def _reservation(self) -> None:
        row = self._new(
            system_labels=labels({"compute.googleapis.com/is_unused_reservation": "true"})
        )
        row["sku"] = {"id": "R", "description": "TpuV5p in us-east5"}

    def _neighbour(self) -> None:
        """Other people's TPU time: unlabelled, and labelled by another backend."""
        owner = self.random.choice(("", "somebody-else"))
        use = Use(
            "000001",
            "tj-000001-1-else",
            "v6e",
            "us-east1-d",
            True,
            4,
            self._at(),
            0.0,
            "0.5",
            labelled=bool(owner),
            owner=owner,
        )
        self.rows.append(_row_of(use, use.start, 1800.0))

    def _old(self) -> None:
        """As rows were before 2020: no credit types, no prices, no resource."""
        row = self._new()
        row["credits"] = [{"name": "Sustained Usage Discount", "amount": -row["cost"] / 7}]
        for column in (
            "price",
            "resource",
            "subscription",
            "consumption_model",
            "tags",
            "adjustment_info",
            "cost_at_list",
            "transaction_type",
        ):
            del row[column]

    def _unknown_columns(self) -> None:
        self._new(carbon={"grams": 3}, brand_new="x")

    def _commitment(self) -> None:
        self._new(
            service={"id": "6F81", "description": "Compute Engine"},
            sku={"id": "K", "description": "Commitment v1: TpuV5e in us-west4 for 1 Year"},
        )


# Files ---------------------------------------------------------------------------------------------------------------


def write_json_lines(path: Path, rows: Iterable[Row]) -> Path:
    text = "".join(json.dumps(_without_nulls(row)) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), 1))
    else:
        path.write_text(text)
    return path


def _without_nulls(row: Row) -> Row:
    """As an extract leaves them out."""
    return {
        k: _without_nulls(v) if isinstance(v, dict) else v for k, v in row.items() if v is not None
    }


def write_json_list(path: Path, rows: Iterable[Row]) -> Path:
    path.write_text(json.dumps(list(rows), indent=1))
    return path


def write_csv(path: Path, rows: Sequence[Row], *, between: str, shuffle: int = 0) -> Path:
    """Structs as columns of their own, lists as JSON text; `shuffle`: columns in another order."""
    flat = [_flat(row, between) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    if shuffle:
        random.Random(shuffle).shuffle(names)
    out = io.StringIO()
    write = csv.DictWriter(out, names, restval="")
    write.writeheader()
    write.writerows(flat)
    path.write_text(out.getvalue())
    return path


def _flat(row: Row, between: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            for below, part in value.items():
                found[f"{name}{between}{below}"] = (
                    json.dumps(part) if isinstance(part, list) else part
                )
        else:
            found[name] = json.dumps(value) if isinstance(value, list) else value
    return found
