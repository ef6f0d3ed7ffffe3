"""Compares a bill with the ledger: matches the bill's rows to the ledger's slices by SQL, and adds up both.

A row is matched to a job by name, else by label, else by hour. Name: the row's resource is a slice of the job in the
row's time; the detailed export has names for some generations. Label: the slice's labels name the job that requested
the slice. Hour: a row of one generation, pricing, zone and hour is shared by the time that slices of the ledger can
have used in the hour; the rest belongs to others. Jobs that are matched by name or label have no share in such rows.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tpujob.api import LedgerSliceView, LedgerView
from tpujob.cli.commands.cost.bill_export import load
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.money.ledger import BilledSlice, cost
from tpujob.domain.text import rfc3339

DAY = 24 * 3600 * 1_000_000
CHIP_HOUR = 3600 * 1_000_000
CENT = 10_000
_WAYS = ("hour", "label", "name")  #: the ways by which rows are matched to a job
_LEDGER = """
CREATE TABLE job (id PRIMARY KEY);
CREATE TABLE slice (job, name, generation, spot, place, chips, ready, gone);
CREATE INDEX slice_name ON slice (name);
"""
#: a slice that is still billed ends now
_INSERT_SLICE = """
INSERT INTO slice VALUES (:job, :slice, :generation, :preemptible, :zone, :chips, :ready, ifnull(:gone, :now))
"""
#: `kind`: a way of `_WAYS`, or a heading for rows without a job; rows of kind `hour` have no job yet
_LINES = """
CREATE TABLE line AS
WITH row AS (
  SELECT *,
    CASE WHEN resource GLOB 'tj-*' THEN coalesce(
      (SELECT job FROM slice WHERE slice.name = resource AND ready < finish AND gone > start),
      (SELECT job FROM slice WHERE slice.name = resource),
      (SELECT job FROM slice WHERE slice.name = rtrim(rtrim(resource, '0123456789'), '-'))) END AS named
  FROM charge JOIN sku USING (description)
), matched AS (
  SELECT *,
    CASE WHEN start < :start THEN 'late rows and corrections of earlier use'
      WHEN start >= :settled THEN 'not settled: newer use'
      WHEN unused THEN 'unused reservation'
      WHEN type <> 'regular' THEN replace(type, '_', ' ')
      WHEN owner <> :owner THEN 'other tpujob backends'
      WHEN generation IS NULL AND owner <> '' THEN 'disks and addresses of slices'
      WHEN generation IS NULL THEN ifnull(service, 'other services')
      WHEN named IS NOT NULL THEN 'name'
      WHEN owner <> '' AND coalesce(job, '') NOT IN (SELECT id FROM job) THEN 'slices of removed jobs'
      WHEN resource GLOB 'tj-[0-9]*-[0-9]*' THEN iif(owner <> '', 'slices not in the ledger', 'other tpujob backends')
      WHEN owner <> '' THEN 'label'
      ELSE 'hour' END AS kind
  FROM row
)
SELECT kind,
  CASE kind WHEN 'name' THEN named WHEN 'label' THEN job
    WHEN 'slices not in the ledger' THEN 'job ' || job ELSE '' END AS key,
  iif(kind IN ('name', 'label', 'hour'), generation, '') AS generation,
  iif(kind IN ('name', 'label', 'hour'), spot, 0) AS spot,
  iif(kind = 'hour', zone, '') AS place, iif(kind = 'hour', start, 0) AS start, iif(kind = 'hour', finish, 0) AS finish,
  count(*) AS rows,
  coalesce(sum(iif(generation IS NULL, 0, CAST(round(usage * 1e6) AS INTEGER) * chips)), 0) AS usage,
  sum(CAST(round(round(cost * 1e6) / rate) AS INTEGER)) AS cost,
  sum(CAST(round(credits / rate) AS INTEGER)) AS credits
FROM matched GROUP BY 1, 2, 3, 4, 5, 6, 7
"""
#: shares each line of kind `hour` among jobs, by the time that each slice can have used; the rest goes to others
_SHARES = """
CREATE TABLE share AS
WITH used AS (
  SELECT line.rowid AS line, slice.job,
    slice.chips * (min(slice.gone, line.finish) - max(slice.ready, line.start)) AS weight
  FROM line JOIN slice ON slice.generation = line.generation AND slice.spot = line.spot AND slice.ready < line.finish
    AND slice.gone > line.start AND (slice.place = line.place OR slice.place LIKE line.place || '-_')
  WHERE line.kind = 'hour' AND (slice.job, slice.generation, slice.spot) NOT IN
    (SELECT key, generation, spot FROM line WHERE kind IN ('name', 'label'))
), parts AS (
  SELECT line, job, 'hour' AS kind, weight FROM used
  UNION ALL
  SELECT line.rowid, '', 'TPU time of others', ifnull(max(0, usage * 3600 - sum(weight)), 1)
  FROM line LEFT JOIN used ON used.line = line.rowid WHERE line.kind = 'hour' GROUP BY line.rowid
)
SELECT *, row_number() OVER place AS nth, sum(weight) OVER place AS reached,
  sum(weight) OVER (PARTITION BY line) AS whole
FROM parts WHERE weight > 0 WINDOW place AS (PARTITION BY line ORDER BY kind DESC, job ROWS UNBOUNDED PRECEDING)
"""
#: a share's part of an amount: a difference of rounded sums, so that the parts add up to the amount
_PART = (
    "CAST(round({0} * (reached * 1.0 / whole)) AS INTEGER)"
    " - CAST(round({0} * ((reached - weight) * 1.0 / whole)) AS INTEGER)"
)
_SUMS = ("usage", "cost", "credits")
_RESULT = f"""
SELECT kind, key, rows, {", ".join(_SUMS)} FROM line WHERE kind <> 'hour'
UNION ALL
SELECT share.kind, share.job, iif(nth = 1, rows, 0), {", ".join(map(_PART.format, _SUMS))}
FROM line JOIN share ON share.line = line.rowid
"""  # noqa: S608


def compare(
    paths: Sequence[Path],
    ledger: LedgerView,
    since: int | None = None,
    until: int | None = None,
    tolerance: float = 0.01,
) -> dict[str, Any]:
    """Compare bill and ledger from `since` to `until`, midnights in UTC, in microseconds; return what `--json` prints.

    The default period begins with the first row that is on the invoice of its own month, and ends 48 hours before the
    newest row, as rows of later use may still be missing. The result has a line for each job, that with the largest gap
    first, and lines for everything else; together they add up to the total. Amounts are whole micro-dollars. A gap is
    the sum of its three parts. Raises BadRequest for files that cannot be read."""
    slices = [(job["job"], slice) for job in ledger["jobs"] for slice in job["slices"]]
    names = {job["job"]: job["name"] for job in ledger["jobs"]}
    now = ledger["at"]
    sums_by_line = defaultdict[tuple[str, str], Counter[str]](Counter)
    with closing(sqlite3.connect("")) as db:  # a temporary file
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _LEDGER)
        duplicates = load(db, paths)
        start, settled, newest = _period(db, since, until)
        end = min(settled, now)
        db.executemany("INSERT INTO job VALUES (?)", ((job,) for job in names))
        for job, slice in slices:
            preemptible = find_pricing(slice["pricing"]).preemptible
            db.execute(_INSERT_SLICE, {**slice, "preemptible": preemptible, "job": job, "now": now})
            time, cost = _time_and_price(slice, start, end)
            unpriced = time if slice["micros_per_hour"] is None else 0
            estimate = 0 if slice["granted"] else cost
            sums = sums_by_line["job", job]
            sums.update(chip_time=time, unpriced=unpriced, list=cost, estimate=estimate)
        db.execute(_LINES, {"start": start, "settled": settled, "owner": ledger["owner"]})
        db.execute(_SHARES)
        for kind, key, *amounts in db.execute(_RESULT):
            sums = sums_by_line["job" if kind in _WAYS else kind, key]
            sums.update({kind: 1}, **dict(zip(("rows", *_SUMS), amounts, strict=True)))
    all_jobs, total = Counter[str](), Counter[str]()
    jobs, others = list[dict[str, Any]](), list[dict[str, Any]]()
    for (kind, key), sums in sums_by_line.items():
        total.update(sums)
        if kind != "job":
            others.append(_line("other", kind, key, sums, tolerance))
        elif sums["chip_time"] or any(map(sums.get, _WAYS)):
            ledger_usage = sums["chip_time"] / 3600
            scaled = sums["list"] * sums["usage"] / ledger_usage if ledger_usage else sums["cost"]
            sums["by_usage"] = round(scaled) - sums["list"]
            all_jobs.update(sums)
            jobs.append(_line("job", key, names[key], sums, tolerance))
    billed = [slice for _, slice in slices if not slice["granted"]]
    unsettled = sum(_time_and_price(slice, end, now)[1] for slice in billed)
    return {
        "from": rfc3339(start / 1e6),
        "until": rfc3339(end / 1e6),
        "newest_export": rfc3339(newest / 1e6),
        "duplicates": duplicates,
        "jobs": sorted(jobs, key=lambda line: (-abs(line["gap_micros"]), line["key"])),
        "all_jobs": _line("sum", "all jobs", "", all_jobs, tolerance),
        "others": sorted(others, key=lambda line: (-line["billed_micros"], line["key"])),
        "total": _line("sum", "total", "", total, tolerance),
        "unsettled_estimate_micros": unsettled,
    }


def _period(db: sqlite3.Connection, since: int | None, until: int | None) -> tuple[int, int, int]:
    """Return start and end of the compared period, and the time of the newest row's export."""
    period = "SELECT max(exported), min(iif(late, NULL, start)) FROM charge"
    newest, first = db.execute(period).fetchone()
    settled = (newest - 2 * DAY) // DAY * DAY if until is None else until
    start = min(settled, newest if first is None else first) if since is None else since
    return start, settled, newest


def _time_and_price(slice: LedgerSliceView, start: int, end: int) -> tuple[int, int]:
    """Return chip-microseconds and micro-dollars by list price in a period; no dollars if no price is known."""
    until = end if slice["gone"] is None else min(slice["gone"], end)
    time = slice["chips"] * max(0, until - max(slice["ready"], start))
    row = BilledSlice(slice["ready"], slice["gone"], slice["micros_per_hour"])
    return time, cost([row], end, start) or 0


def _line(kind: str, key: str, name: str, sums: Counter[str], tolerance: float) -> dict[str, Any]:
    billed = sums["cost"] + sums["credits"]
    gap = billed - sums["estimate"]
    by_rate = sums["cost"] - sums["list"] - sums["by_usage"]
    larger = max(abs(sums["estimate"]), abs(billed))
    return {
        "kind": kind,
        "key": key,
        "name": name,
        "found_by": " ".join(way for way in _WAYS if way in sums),
        "rows": sums["rows"],
        "ledger_chip_hours": round(sums["chip_time"] / CHIP_HOUR, 6),
        "unpriced_chip_hours": round(sums["unpriced"] / CHIP_HOUR, 6),
        "billed_chip_hours": sums["usage"] / 1e6,
        **{f"{part}_micros": sums[part] for part in ("list", "estimate", "cost", "credits")},
        "billed_micros": billed,
        "gap_micros": gap,
        "by_usage_micros": sums["by_usage"],
        "by_rate_micros": by_rate,
        "by_credits_micros": gap - sums["by_usage"] - by_rate,
        "differs": not sums["unpriced"] and abs(gap) > max(CENT, tolerance * larger),
    }
