"""A second biller: makes the rows of a billing export from the use of slices. It shares no code with the product, so a
mistake in either of them shows."""

import csv
import gzip
import io
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """The use of one slice, as the cloud knows it."""

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
    named: bool = False  #: whether the detailed export names the slice
    owner: str = "lab-x"


def stamp(seconds: float) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime(
        "%Y-%m-%d %H:%M:%S.%f UTC"
    )


def blank(at: float, **fields: Any) -> Row:
    """Return a neutral row with every column of the detailed export."""
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
    return row | fields


def labels(pairs: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs.items()]


def rows_of(use: Use) -> Iterator[Row]:
    """Return a row for each clock hour in which the slice was ready. Spot preempted in its first minute is free."""
    if use.spot and use.end - use.start < 60:
        return
    description, service, chips = SKUS[use.generation]
    words = f"Preemptible {description}" if use.spot else description
    region = use.zone.rpartition("-")[0]
    at = use.start // HOUR * HOUR
    while at < use.end:
        seconds = min(use.end, at + HOUR) - max(use.start, at)
        units = Decimal(use.chips) * Decimal(seconds) / 3600 / chips
        cost = units * chips * Decimal(use.usd_per_chip_hour)
        row = blank(
            at,
            service={"id": "E000-3F24-B8AA", "description": service},
            sku={"id": f"SKU-{use.generation}", "description": f"{words} running in {region}"},
            location={"location": region, "country": "US", "region": region, "zone": use.zone},
            cost=float(cost),
            usage={"amount": float(units) * 3600, "unit": "seconds",
                   "amount_in_pricing_units": float(units), "pricing_unit": "hour"},
        )  # fmt: skip
        if use.labelled:
            own = {"tpujob": "1", "tpujob-job": use.job, "tpujob-owner": use.owner}
            row["labels"] = labels(own)
        if use.named:
            path = f"//tpu.googleapis.com/projects/1/locations/{use.zone}/nodes/{use.slice}"
            row["resource"] = {"name": use.slice, "global_name": path}
        if Decimal(use.promotion):
            row["credits"] = [credit("PROMOTION", -float(cost * Decimal(use.promotion)))]
        yield row
        at += HOUR


def ledger_slice(use: Use, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Return the job and the slice's part of its ledger."""
    return use.job, {
        "slice": use.slice,
        "generation": use.generation,
        "zone": use.zone,
        "pricing": "spot" if use.spot else "on-demand",
        "chips": use.chips,
        "ready": round(use.start * 1e6),
        "gone": round(use.end * 1e6),
        "micros_per_hour": round(float(use.usd_per_chip_hour) * use.chips * 1e6),
        "granted": use.promotion == "1",
    } | fields


def ledger_of(slices: Iterable[tuple[str, dict[str, Any]]], at: float) -> Any:
    """Return the response of `JobsApi.ledger`; an empty slice stands for a job without slices."""
    jobs = dict[str, list[dict[str, Any]]]()
    for job, slice in slices:
        jobs.setdefault(job, []).extend([slice] if slice else [])
    return {
        "at": round(at * 1e6),
        "owner": "lab-x",
        "jobs": [{"job": job, "name": f"job-{job}", "slices": jobs[job]} for job in jobs],
    }


def credit(type: str, amount: float) -> Row:
    return {"id": f"{type.lower()}-1", "type": type, "name": type.lower(), "amount": amount}


# Other rows ----------------------------------------------------------------------------------------------------------

#: other products on a bill
OTHERS: tuple[Row, ...] = (
    {"system_labels": labels({"storage.googleapis.com/object_state": "noncurrent"})},
    {"service": {"description": "Cloud Run"}, "sku": {"description": "Something"}},
    {"service": {"description": "Vertex AI"}, "sku": {"description": "Something"}},
    {"cost_type": "tax", "project": {"id": None}, "location": {}, "usage": {}},
    {"cost_type": "rounding_error"},
    {"cost_type": "adjustment", "adjustment_info": {"id": "a1", "type": "GOODWILL"}},
    {"system_labels": labels({"compute.googleapis.com/is_unused_reservation": "true"}),
     "sku": {"description": "TpuV5p in us-east5"}},
    {"service": {"description": "Compute Engine"},
     "sku": {"description": "Commitment v1: TpuV5e in us-west4 for 1 Year"}},
    {"carbon": {"grams": 3}, "brand_new": "x"},
)  # fmt: skip


def other_rows(seed: int, count: int) -> list[Row]:
    """Return rows of everything else on a bill: other products, corrections, late rows, TPU time of other owners, and
    rows without the columns that exports lacked before 2020."""
    chance = random.Random(seed)
    rows = list[Row]()
    while len(rows) < count:
        at = START + chance.randrange(28 * 24) * HOUR
        sign = chance.choice((1, 1, 1, 0, -1))
        cost = sign * chance.random() * 10 ** chance.randint(-7, 2)
        row = blank(at, cost=cost, **chance.choice(OTHERS))
        if chance.random() < 0.4:
            types = chance.sample(CREDIT_TYPES, chance.randint(1, 3))
            row["credits"] = [credit(type, -cost * chance.random() / 3) for type in types]
        rows.append(row)
        match len(rows) % 20:
            case 0:  # a correction: the row repeated negative, and a new one, in a later month
                later = {"invoice": {"month": "202609"}, "export_time": stamp(START + 40 * DAY)}
                rows.append(row | later | {"cost": -cost, "credits": []})
                rows.append(row | later | {"cost": cost / 3, "credits": []})
            case 5:
                late = START - chance.randrange(1, 200) * HOUR
                rows.append(blank(late, cost=cost, invoice={"month": "202608"}))
            case 10:
                owner = chance.choice(("", "somebody-else"))
                use = Use("000001", "tj-000001-1-else", "v6e", "us-east1-d", True, 4, at, at + 1800, "0.5",
                          labelled=bool(owner), owner=owner)  # fmt: skip
                rows += rows_of(use)
            case 15:
                del row["price"], row["resource"], row["tags"], row["adjustment_info"]
                row["credits"] = [{"name": "Sustained Usage Discount", "amount": -cost / 7}]
    return rows


# Files ---------------------------------------------------------------------------------------------------------------


def write_json_lines(path: Path, rows: Iterable[Row]) -> Path:
    text = "".join(json.dumps(_without_nulls(row)) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), 1))
    else:
        path.write_text(text)
    return path


def _without_nulls(row: Row) -> Row:
    """Return the row without nulls, which an extract leaves out."""
    return {
        k: _without_nulls(v) if isinstance(v, dict) else v for k, v in row.items() if v is not None
    }


def write_csv(path: Path, rows: Sequence[Row], *, between: str = "_", shuffle: int = 0) -> Path:
    """Write structs as separate columns and lists as JSON text; `shuffle`: the seed of another order of the columns."""
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
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            for below, part in value.items():
                flat[f"{name}{between}{below}"] = (
                    json.dumps(part) if isinstance(part, list) else part
                )
        else:
            flat[name] = json.dumps(value) if isinstance(value, list) else value
    return flat
