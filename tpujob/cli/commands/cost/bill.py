"""Sets the rows of a bill beside the ledger: matches them to our slices by SQL, and adds up both.

A row is a job's by the name of its resource, which the detailed export has for some generations (of several jobs that a
slice served, one that had it in the row's time); else by the labels of each slice, which name the job that
requested it; else by generation, pricing, zone and hour: what our slices can have used in that hour is theirs, and the
rest is others'. A job that is found by name or label takes no part in the last.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpujob.api import LedgerSliceView, LedgerView
from tpujob.cli.commands.cost.bill_export import load
from tpujob.domain.money.ledger import between
from tpujob.domain.text import rfc3339

DAY = 24 * 3600 * 1_000_000
CHIP_HOUR = 3600 * 1_000_000
CENT = 10_000
_WAYS = ("hour", "label", "name")  #: how rows of a job are found
_LEDGER = """
CREATE TABLE job (id PRIMARY KEY);
CREATE TABLE slice (job, name, generation, spot, place, chips, ready, gone);
CREATE INDEX slice_name ON slice (name);
"""
#: kind: a heading of others, or how the job was found (`hour`: no job yet)
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
#: how each line without a job is shared: by what each slice can have used, and what is left over
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
#: differences of rounded sums, so that the parts add up to the whole
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
    """Compare bill and ledger from `since` to `until`, midnights, UTC, in microseconds; by default from the first row
    that is on the invoice of its own month, until 48 hours before the newest row: of later use, rows may still be
    missing. Raises BadRequest for files that cannot be read.

    Return what `--json` prints: the lines of jobs, that with the largest gap first, and of all else; together they add
    up to the total. Amounts are whole micro-dollars. A gap is the sum of its three parts, and the parts of the sum of
    all jobs are the sums of theirs."""
    slices = [(job["job"], slice) for job in ledger["jobs"] for slice in job["slices"]]
    names, now = {job["job"]: job["name"] for job in ledger["jobs"]}, ledger["at"]
    bill = defaultdict[tuple[str, str], Counter[str]](Counter)
    db = sqlite3.connect("")  # a temporary file
    try:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _LEDGER)
        duplicates = load(db, paths)
        start, settled, newest = _period(db, since, until)
        end = min(settled, now)
        db.executemany("INSERT INTO job VALUES (?)", ((job,) for job in names))
        for job, s in slices:
            _insert(db, job, s, now)
            time, cost = _use(s, start, end)
            unpriced = time if s["micros_per_hour"] is None else 0
            estimate = 0 if s["granted"] else cost
            bill["job", job].update(chip_time=time, unpriced=unpriced, list=cost, estimate=estimate)
        db.execute(_LINES, {"start": start, "settled": settled, "owner": ledger["owner"]})
        db.execute(_SHARES)
        for kind, key, *sums in db.execute(_RESULT):
            line = bill["job" if kind in _WAYS else kind, key]
            line.update({kind: 1}, **dict(zip(("rows", *_SUMS), sums, strict=True)))
    finally:
        db.close()
    all_jobs, total = Counter[str](), Counter[str]()
    jobs, others = list[dict[str, Any]](), list[dict[str, Any]]()
    for (kind, key), sums in bill.items():
        total.update(sums)
        if kind != "job":
            others.append(_line("other", kind, key, sums, tolerance))
        elif sums["chip_time"] or any(map(sums.get, _WAYS)):
            ours = sums["chip_time"] / 3600
            used = round(sums["list"] * sums["usage"] / ours) if ours else sums["cost"]
            sums["by_usage"] = used - sums["list"]
            all_jobs.update(sums)
            jobs.append(_line("job", key, names[key], sums, tolerance))
    unsettled = sum(_use(slice, end, now)[1] for _, slice in slices if not slice["granted"])
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
    """Return the start and the end of what is compared, and when the newest row was exported."""
    period = "SELECT max(exported), min(iif(late, NULL, start)) FROM charge"
    newest, first = db.execute(period).fetchone()
    settled = (newest - 2 * DAY) // DAY * DAY if until is None else until
    start = min(settled, newest if first is None else first) if since is None else since
    return start, settled, newest


def _insert(db: sqlite3.Connection, job: str, s: LedgerSliceView, now: int) -> None:
    """Insert a slice of the ledger; one that is still billed ends now."""
    row = (job, s["slice"], s["generation"], s["pricing"] == "spot", s["zone"], s["chips"])
    row = (*row, s["ready"], now if s["gone"] is None else s["gone"])
    db.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _use(slice: LedgerSliceView, start: int, end: int) -> tuple[int, int]:
    """Return chip-microseconds and micro-dollars by list price in that time; no dollars if no price is known."""
    until = end if slice["gone"] is None else min(slice["gone"], end)
    time = slice["chips"] * max(0, until - max(slice["ready"], start))
    rate = slice["micros_per_hour"]
    return time, 0 if rate is None else between(rate, slice["ready"], start, until)


def _line(kind: str, key: str, name: str, sums: Counter[str], tolerance: float) -> dict[str, Any]:
    billed = sums["cost"] + sums["credits"]
    gap, by_rate = billed - sums["estimate"], sums["cost"] - sums["list"] - sums["by_usage"]
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
