"""Loads Cloud Billing's export files into a database: CSV, JSON lines or one JSON list, also compressed with gzip.

JSON has columns as Google nests them; CSV has them dotted (`sku.description`) or flattened (`sku_description`), and
repeated ones as JSON text. Other columns are ignored.
"""

import csv
import gzip
import io
import itertools
import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tpujob.domain.hardware.tpu_prices import chips_per_unit
from tpujob.errors import BadRequest

_REQUIRED = ("cost", "currency", "usage_start_time", "usage_end_time", "export_time")
_REQUIRED_OF_CSV = (
    *_REQUIRED, "sku.description", "service.description", "labels", "credits", "usage.amount_in_pricing_units"
)  # fmt: skip
_COLUMNS = (
    *_REQUIRED_OF_CSV, "currency_conversion_rate", "location.zone", "location.region", "cost_type", "system_labels",
    "resource.name", "resource.global_name", "invoice.month", "project.id",
)  # fmt: skip
#: `sku.generation` is null unless the SKU is TPU time; `sku.chips` are per unit. Times are microseconds. `late`: on the
#: invoice of a later month; `other`: more values of a row, to recognise duplicates. A constraint's name is its message
_TABLES = """
CREATE TABLE sku (description PRIMARY KEY, generation, spot, chips);
CREATE TABLE charge (
  file, service, description, zone, type, job, owner, unused, resource,
  start CONSTRAINT "`usage_start_time` is not a time" CHECK (ifnull(start, 0) > 1e15),
  finish CONSTRAINT "`usage_end_time` is not a time" CHECK (ifnull(finish, 0) > 1e15),
  exported CONSTRAINT "`export_time` is not a time" CHECK (ifnull(exported, 0) > 1e15),
  late, currency CONSTRAINT "there is no `currency`" CHECK (currency IS NOT NULL),
  rate REAL CONSTRAINT "`currency_conversion_rate` is not a rate" CHECK (typeof(rate) = 'real' AND rate > 0),
  cost REAL CONSTRAINT "`cost` is not a number" CHECK (typeof(cost) = 'real'),
  credits CONSTRAINT "a credit has no `amount`" CHECK (credits IS NOT NULL),
  usage REAL CONSTRAINT "`usage.amount_in_pricing_units` is not a number"
    CHECK (usage IS NULL OR typeof(usage) = 'real'),
  other);
"""


def _time_sql(column: str) -> str:
    """Return the SQL that parses a time: `2026-08-01 00:00:00 UTC`, `2026-08-01T00:00:00Z`, or seconds."""
    seconds = f"iif({column} GLOB '????-*', strftime('%s', replace({column}, ' UTC', '')), round({column}))"
    return f"CAST({seconds} AS INTEGER) * 1000000"


def _label_sql(labels: str, key: str) -> str:
    """Return the SQL for the value of a label."""
    return (
        f"CASE WHEN instr({labels}, '{key}') THEN (SELECT json_extract(value, '$.value')"  # noqa: S608
        f" FROM json_each({labels}) WHERE json_extract(value, '$.key') = '{key}') END"
    )


#: LIMIT keeps SQLite from reading a column of the file each time that its name occurs
_INSERT = f"""
INSERT INTO charge SELECT ?1, service_description, ifnull(sku_description, ''),
  coalesce(location_zone, location_region, ''), cost_type,
  {_label_sql("labels", "tpujob-job")}, {_label_sql("labels", "tpujob-owner")},
  {_label_sql("system_labels", "compute.googleapis.com/is_unused_reservation")} = 'true',
  CASE WHEN instr(resource, 'tj-') THEN replace(resource, rtrim(resource, replace(resource, '/', '')), '')
    ELSE resource END,
  start, finish, exported, invoice_month > strftime('%Y%m', start / 1000000, 'unixepoch', '-7 hours'),
  currency, iif(currency_conversion_rate IS NULL AND currency = 'USD', 1, currency_conversion_rate), cost,
  CASE WHEN credits <> '[]' THEN (
    SELECT iif(count(*) = total(json_extract(value, '$.amount') GLOB '[-0-9]*'),
      total(round(json_extract(value, '$.amount') * 1e6)), NULL) FROM json_each(credits)) ELSE 0 END,
  usage_amount_in_pricing_units,
  coalesce(project_id, '') || coalesce(json(labels), '') || coalesce(usage_amount_in_pricing_units + 0.0, '')
FROM (
  SELECT *, coalesce(resource_name, resource_global_name) resource, {_time_sql("usage_start_time")} start,
    {_time_sql("usage_end_time")} finish, {_time_sql("export_time")} exported
  FROM (SELECT {{columns}} LIMIT 1) LIMIT 1)
"""  # noqa: S608 # an invoice's month is one of the Pacific
_KEY = """service, description, zone, type, job, owner, unused, resource, start, finish, exported, late, currency, cost,
  credits, usage, other"""
#: keeps as many of identical rows as the file with the most of them has
_DROP_DUPLICATES = f"""
DELETE FROM charge WHERE rowid IN (SELECT id FROM (
  SELECT id, row_number() OVER (PARTITION BY {_KEY}, nth ORDER BY file) AS again FROM (
    SELECT *, rowid AS id, row_number() OVER (PARTITION BY {_KEY}, file ORDER BY rowid) AS nth FROM charge))
  WHERE again > 1)
"""  # noqa: S608
_UNREADABLE = (OSError, EOFError, ValueError, TypeError, zlib.error, sqlite3.Error, csv.Error)
_GENERATION = re.compile(r"tpu[ -]?v(\d)\s?(e|p)?(?![0-9a-z])")
#: number of a generation -> its letter where a description omits the letter
_LETTERS = {"5": "e", "6": "e"}


class _Table(NamedTuple):
    """The rows of an export file."""

    columns: list[str]  #: SQL of each column; values are bound from ?2 on
    rows: Iterator[tuple[str, Sequence[str]]]  #: place in the file and values
    width: int  #: number of values of a row


def load(db: sqlite3.Connection, paths: Sequence[Path]) -> int:
    """Load all rows into the tables `charge` and `sku`; return the number of dropped duplicates. Raises BadRequest with
    file and line; the tables are then incomplete."""
    db.executescript(_TABLES)
    for number, path in enumerate(paths):
        _load_file(db, number, path)
    for (name,) in db.execute("SELECT DISTINCT description FROM charge").fetchall():
        db.execute("INSERT INTO sku VALUES (?, ?, ?, ?)", (name, *classify_sku(name)))
    kinds = db.execute("SELECT DISTINCT max(resource NOTNULL) FROM charge GROUP BY file").fetchall()
    if len(kinds) > 1:
        raise BadRequest("give only the detailed export: the standard one has the same costs")
    if not kinds:
        raise BadRequest(f"{paths[0]} has no rows", hint="Is the query's period the right one?")
    return db.execute(_DROP_DUPLICATES).rowcount if len(paths) > 1 else 0


def classify_sku(description: str) -> tuple[str | None, bool, int]:
    """Return generation (None: not TPU time), spot and chips per unit of a SKU. Its description decides, as in public
    code: Google's `usageType` is OnDemand for preemptible TPUs, too."""
    words = description.lower()
    match = _GENERATION.search(words)
    if match is None or "commitment" in words:
        return None, False, 1
    generation = f"v{match[1]}{match[2] or _LETTERS.get(match[1], '')}"
    return generation, "preemptible" in words or "spot" in words, chips_per_unit(generation)


def _load_file(db: sqlite3.Connection, number: int, path: Path) -> None:
    place = "line 1"
    try:
        with path.open("rb") as raw:
            plain = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
                table = _open(text)
                insert = _INSERT.format(columns=", ".join(table.columns))
                for place, values in table.rows:  # noqa: B007
                    if len(values) != table.width:
                        raise ValueError(f"{len(values)} cells instead of {table.width}")
                    db.execute(insert, (number, *values))
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.strerror:
            raise BadRequest(f"{path} cannot be read: {error.strerror}") from None
        reason = str(error)
        raise BadRequest(
            f"{path}: {place}: {reason.removeprefix('CHECK constraint failed: ')}",
            hint="Nothing of it was used. If it is not an export, export it with: "
            "bq extract --destination_format=NEWLINE_DELIMITED_JSON --compression=GZIP TABLE gs://...",
        ) from None


def _open(file: io.TextIOWrapper) -> _Table:
    """Return the rows of an export. Raises ValueError for a file that is none."""
    lines = ((f"line {n}", line) for n, line in enumerate(file, 1) if line.strip())
    first = next(lines, ("line 1", ""))
    if first[1].lstrip().startswith("["):
        rows = json.loads(first[1] + file.read())
        return _json_table((f"row {n}", json.dumps(row)) for n, row in enumerate(rows, 1))
    lines = itertools.chain([first], lines)
    return _json_table(lines) if first[1].lstrip().startswith("{") else _csv_table(lines)


def _csv_table(lines: Iterator[tuple[str, str]]) -> _Table:
    reader = csv.reader((line for _, line in lines), strict=True)
    names = [_flat_name(title.strip().lower()) for title in next(reader, list[str]())]
    _check_columns(names, map(_flat_name, _REQUIRED_OF_CSV))
    values = {name: f"nullif(?{number}, '')" for number, name in enumerate(names, 2)}
    columns = [f"{values.get(name, 'NULL')} {name}" for name in map(_flat_name, _COLUMNS)]
    rows = ((f"line {reader.line_num}", cells) for cells in reader if cells)
    return _Table([*columns, f"?{len(names) + 1} last"], rows, len(names))


def _json_table(lines: Iterator[tuple[str, str]]) -> _Table:
    first_rows = list(itertools.islice(lines, 1))
    for _, row in first_rows:
        _check_columns(json.loads(row), (*_REQUIRED, "service", "sku"))
    columns = [f"json_extract(?2, '$.{name}') {_flat_name(name)}" for name in _COLUMNS]
    rows = ((place, (row,)) for place, row in itertools.chain(first_rows, lines))
    return _Table(columns, rows, 1)


def _flat_name(name: str) -> str:
    return name.replace(".", "_")


def _check_columns(names: Iterable[str], required: Iterable[str]) -> None:
    for name in required:
        if name not in names:
            shown = ", ".join(sorted(names)[:5])[:80]
            raise ValueError(f"the column `{name}` is missing; there are {shown!r}")
