"""Loads Cloud Billing's export files into a database: CSV, JSON lines or one JSON list, also compressed with gzip.

Columns are found by name, nested (`{"sku": {"id": ...}}`), dotted (`sku.id`) or flattened (`sku_id`). Repeated columns
are lists, or JSON text in CSV. Other columns are ignored.
"""

import csv
import gzip
import io
import itertools
import json
import math
import operator
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from tpujob.billing.categories import Sku, classify_sku
from tpujob.errors import BadRequest

CHUNK = 1 << 20  #: characters
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOW = "export it with: bq extract --destination_format=NEWLINE_DELIMITED_JSON --compression=GZIP TABLE gs://..."
_REQUIRED = ("cost", "currency", "usage_start_time", "usage_end_time", "export_time")
_REQUIRED_OF_CSV = (*_REQUIRED, "sku.description", "service.description", "labels", "credits")
_COLUMNS = (
    *_REQUIRED_OF_CSV, "currency_conversion_rate", "service.id", "sku.id", "location.zone", "location.region",
    "cost_type", "system_labels", "usage.amount_in_pricing_units", "usage.pricing_unit", "resource.name",
    "resource.global_name", "invoice.month", "project.id",
)  # fmt: skip
_STATES = {
    "noncurrent": "stored bytes: old versions",
    "soft_deleted": "stored bytes: soft-deleted",
    "multipart": "stored bytes: unfinished uploads",
}
#: Times are microseconds. `late`: on the invoice of a later month; `at`: the start of the day, of a late row that of
#: its use; `other`: tells rows of several files apart. The name of a constraint is its message.
_TABLES = """
CREATE TABLE sku (id INTEGER PRIMARY KEY, generation, spot, chips, category, name);
CREATE TABLE charge (
  file, sku, zone, type, job, owner, state, resource, usage_start_time NOT NULL, usage_end_time NOT NULL,
  export_time NOT NULL, late, at, currency NOT NULL,
  currency_conversion_rate REAL NOT NULL CONSTRAINT "`currency_conversion_rate` is not a rate"
    CHECK (typeof(currency_conversion_rate) = 'real' AND currency_conversion_rate > 0),
  cost REAL NOT NULL CONSTRAINT "`cost` is not a number" CHECK (typeof(cost) = 'real'), promotions, discounts,
  usage REAL CONSTRAINT "`usage.amount_in_pricing_units` is not a number"
    CHECK (usage IS NULL OR typeof(usage) = 'real'),
  other);
"""
_INSERT = """
INSERT INTO charge SELECT ?1, sku, zone, type, job, owner, state, resource, start, finish, exported, late,
  CASE WHEN late THEN start ELSE start / 86400000000 * 86400000000 END,
  currency, rate, cost, promotions, discounts, usage, other
FROM (SELECT
  sku_id(coalesce(service_description, service_id, ''), coalesce(sku_description, sku_id, '')) sku,
  coalesce(location_zone, location_region, '') zone, coalesce(cost_type, 'regular') type,
  CASE WHEN instr(labels, 'tpujob-') THEN label(labels, 'tpujob-job') END job,
  CASE WHEN instr(labels, 'tpujob-') THEN label(labels, 'tpujob-owner') END owner,
  CASE WHEN system_labels <> '[]' THEN storage_state(system_labels) END state,
  CASE WHEN instr(coalesce(resource_name, resource_global_name), 'tj-')
    THEN last_part(coalesce(resource_name, resource_global_name))
    ELSE substr(coalesce(resource_name, resource_global_name), 1, 0) END resource,
  moment(usage_start_time) start, moment(usage_end_time) finish, moment(export_time) exported,
  invoice_month > invoiced(usage_start_time) late, currency,
  CASE WHEN currency_conversion_rate IS NULL AND currency = 'USD' THEN 1 ELSE currency_conversion_rate END rate,
  cost, CASE WHEN credits <> '[]' THEN credit(credits, 1) ELSE 0 END promotions,
  CASE WHEN credits <> '[]' THEN credit(credits, 0) ELSE 0 END discounts,
  CASE WHEN usage_pricing_unit IN ('hour', 'hours', 'h') THEN usage_amount_in_pricing_units END usage,
  {other} other
  FROM (SELECT {columns} LIMIT 1) LIMIT 1)
"""
_OTHER = "coalesce(project_id, '') || coalesce(json(labels), '') || coalesce(usage_amount_in_pricing_units + 0.0, '')"
#: of identical rows, as many count as the file has that has most of them
_DROP_DUPLICATES = """
DELETE FROM charge WHERE rowid IN (SELECT id FROM (
  SELECT id, row_number() OVER (PARTITION BY {key}, nth ORDER BY file) AS again FROM (
    SELECT *, rowid AS id, row_number() OVER (PARTITION BY {key}, file ORDER BY rowid) AS nth FROM charge))
  WHERE again > 1)
""".replace(
    "{key}",
    "sku, zone, type, job, owner, state, resource, usage_start_time, usage_end_time, export_time, late, currency, "
    "cost, promotions, discounts, usage, other",
)


def load(db: sqlite3.Connection, paths: Sequence[Path]) -> int:
    """Load all rows into the table `charge`; return how many an earlier file had already. Raises BadRequest with file
    and line; then nothing of the files may be used."""
    db.executescript(_TABLES)
    problems: list[str] = []
    skus: dict[Sku, int] = {}
    for function in (_label, _storage_state, _last_part, _moment, _invoiced, _credit):
        _add_function(db, function, problems)
    _add_function(
        db, lambda *names: skus.setdefault(classify_sku(*names), len(skus)), problems, "sku_id"
    )
    for number, path in enumerate(paths):
        _load_file(db, number, path, problems, other=_OTHER if len(paths) > 1 else "''")
    kinds = db.execute(
        "SELECT max(resource IS NOT NULL), file FROM charge GROUP BY file ORDER BY 1"
    )
    db.executemany(
        "INSERT INTO sku VALUES (?, ?, ?, ?, ?, ?)", ((n, *sku) for sku, n in skus.items())
    )
    named: list[tuple[int, Path]] = [(detailed, paths[number]) for detailed, number in kinds]
    if not named:
        raise BadRequest(f"{paths[0]} has no rows", hint="Is the query's period the right one?")
    if named[0][0] != named[-1][0]:
        raise BadRequest(
            f"{named[-1][1]} names resources and {named[0][1]} does not: "
            "a detailed and a standard export have the same costs",
            hint="Give only the detailed one.",
        )
    return db.execute(_DROP_DUPLICATES).rowcount if len(paths) > 1 else 0


def _load_file(
    db: sqlite3.Connection, number: int, path: Path, problems: list[str], other: str
) -> None:
    export = _Export()
    problem = ""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            plain = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
                columns, rows = export.open(text)
                insert = _INSERT.format(columns=", ".join(columns), other=other)
                db.executemany(insert, ((number, *row) for row in rows))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the file is cut off or damaged: {error}"
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror or error}") from None
    except (sqlite3.Error, ValueError, csv.Error) as error:
        problem = problems[-1] if problems else str(error)
        problem = problem.removeprefix("CHECK constraint failed: ")
        problem = problem.replace("NOT NULL constraint failed: charge.", "there is no ")
    if problem:
        raise BadRequest(
            f"{path}: {export.where()}: {problem}",
            hint=f"Nothing of it was used. If it is not an export, {_HOW}",
        )


class _Export:
    """The rows of one file, and which one was read last."""

    def __init__(self) -> None:
        self._unit, self._number = "line", 1

    def where(self) -> str:
        return f"{self._unit} {self._number}"

    def open(self, file: io.TextIOWrapper) -> tuple[list[str], Iterator[Sequence[str]]]:
        """Return an SQL expression for each column, and the rows to bind, from ?2 on."""
        first = file.readline(CHUNK)
        while first and not first.strip():
            first = file.readline(CHUNK)
        if first.lstrip()[:1] in ("{", "["):
            lines = first.lstrip()[0] == "{"
            rows = self._json_lines(first, file) if lines else self._json_list(first, file)
            record = next(rows, ("{}",))
            keys = set(json.loads(record[0]))
            if keys or lines:
                _check(keys, _REQUIRED)
            columns = [_json_column(name, keys) for name in _COLUMNS]
            return columns, itertools.chain([record], rows) if keys else iter(())
        titles: list[str] = next(csv.reader([first]), list[str]())
        names = [_flat(title) for title in titles]
        _check(set(names), map(_flat, _REQUIRED_OF_CSV))
        used = [name for name in _COLUMNS if _flat(name) in names]
        columns = [
            f"nullif(?{used.index(name) + 2}, '') {_flat(name)}"
            if name in used
            else f"NULL {_flat(name)}"
            for name in _COLUMNS
        ]
        pick = operator.itemgetter(*(names.index(_flat(name)) for name in used))
        return columns, map(pick, self._csv_rows(file, len(names)))

    def _csv_rows(self, file: io.TextIOWrapper, width: int) -> Iterator[Sequence[str]]:
        csv.field_size_limit(CHUNK)
        reader = csv.reader(file, strict=True)
        for cells in reader:
            self._number = reader.line_num + 1
            if len(cells) == width:
                yield cells
            elif cells:
                raise ValueError(f"{len(cells)} cells instead of {width}")

    def _json_lines(self, text: str, file: io.TextIOWrapper) -> Iterator[tuple[str]]:
        while text:
            if text.strip():
                yield (text,)
            self._number, text = self._number + 1, file.readline()

    def _json_list(self, text: str, file: io.TextIOWrapper) -> Iterator[tuple[str]]:
        self._unit, self._number = "row", 0
        try:
            rows = json.loads(text + file.read())
        except json.JSONDecodeError as error:
            raise ValueError(f"the list of rows breaks off, or is not JSON: {error}") from None
        for self._number, row in enumerate(rows, 1):
            yield (json.dumps(row),)


def _json_column(name: str, keys: set[str]) -> str:
    nested = name.partition(".")[0] in keys
    path = f'"{name}"' if name in keys else name if nested else _flat(name)
    return f"json_extract(?2, '$.{path}') {_flat(name)}"


def _flat(title: str) -> str:
    return title.strip().lower().replace(".", "_")


def _check(names: set[str], required: Iterable[str]) -> None:
    missing = [name for name in required if name not in names]
    if missing:
        shown = ", ".join(sorted(names)[:5])[:80]
        raise ValueError(f"the column `{missing[0]}` is missing; there are {shown!r}")
    multiplied = [
        name for name in ("labels_key", "credits_amount", "credits_type") if name in names
    ]
    if multiplied:
        raise ValueError(
            f"the column `{multiplied[0]}` means that a cost stands in several rows; leave UNNEST out of the query, "
            "select TO_JSON_STRING(labels) AS labels, and credits likewise"
        )


# Functions of the SQL above ------------------------------------------------------------------------------------------


def _add_function(
    db: sqlite3.Connection, function: Callable[..., Any], problems: list[str], name: str = ""
) -> None:
    """Register it; the message of its error, which SQLite drops, is added to `problems`."""

    def reporting(*values: Any) -> Any:
        try:
            return function(*values)
        except (ValueError, ArithmeticError, TypeError, KeyError, AttributeError) as error:
            problems.append(str(error))
            raise

    name = name or function.__name__.removeprefix("_")
    db.create_function(name, -1, lru_cache(32_768)(reporting), deterministic=True)


def _moment(text: Any) -> int | None:
    """As BigQuery writes times: `2026-08-01 00:00:00 UTC`, `2026-08-01T00:00:00Z`, or seconds since the epoch."""
    if text is None:
        return None
    try:
        if str(text)[4:5] != "-":
            return round(float(text) * 1e6)
        time = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time") from None
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)


def _invoiced(text: Any) -> str:
    """Return the month of the invoice: Google's months are those of the Pacific."""
    return (_EPOCH + timedelta(microseconds=_moment(text) or 0, hours=-7)).strftime("%Y%m")


def _parse_list(column: str, text: str) -> list[dict[str, Any]]:
    try:
        value: Any = json.loads(text)
    except ValueError:
        raise ValueError(f"`{column}` is not JSON: {text[:40]!r}") from None
    if isinstance(value, dict):
        pairs = cast(dict[str, Any], value)
        return [{"key": key, "value": pairs[key]} for key in pairs]
    objects = cast(list[Any], value if isinstance(value, list) else [None])
    if not all(isinstance(item, dict) for item in objects):
        raise ValueError(f"`{column}` is not a list of objects")
    return objects


def _label(text: str, key: str) -> str | None:
    return next(
        (one.get("value") or "" for one in _parse_list("labels", text) if one.get("key") == key),
        None,
    )


def _storage_state(text: str) -> str | None:
    labels = {one.get("key"): one.get("value") for one in _parse_list("system_labels", text)}
    if labels.get("compute.googleapis.com/is_unused_reservation") == "true":
        return "unused reservation"
    return _STATES.get(str(labels.get("storage.googleapis.com/object_state")))


def _last_part(name: str | None) -> str | None:
    return name and name.rpartition("/")[2]


def _credit(text: str, promotions: int) -> int:
    """Return the sum of all promotions of a row, or of all other credits, each rounded to a micro-unit."""
    return _credits(text)[promotions]


@lru_cache(1)
def _credits(text: str) -> list[int]:
    sums = [0, 0]
    for credit in _parse_list("credits", text):
        if "amount" not in credit:
            raise ValueError("a credit has no `amount`")
        amount = float(credit["amount"]) * 1e6
        sums[credit.get("type") == "PROMOTION"] += int(amount + math.copysign(0.5, amount))
    return sums
