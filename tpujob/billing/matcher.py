"""Matches the rows of a bill to our slices by SQL, and sets the sums beside the ledger.

A row is a job's by the name of its resource, which the detailed export has for some generations (of several jobs that a
slice served, one that had it in the row's time); else by the labels of each slice, which name the job that
requested it; else by generation, pricing, zone and hour: what our slices can have used in that hour is theirs, and the
rest is others'. A job that is found by name or label takes no part in the last.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tpujob.billing.categories import CATEGORIES
from tpujob.billing.export import load
from tpujob.billing.totals import JobLine, OtherLine, Reconciled, Totals
from tpujob.domain.money.ledger import between

DAY = 24 * 3600 * 1_000_000
#: rows come within a day as a rule, sometimes later; nothing is promised (documented)
SETTLED_AFTER = 2 * DAY

_LEDGER = """
CREATE TABLE job (id PRIMARY KEY);
CREATE TABLE slice (job, name, generation, spot, place, chips, ready, gone);
CREATE INDEX slice_name ON slice (name);
"""  #: kind: a category, `before` or `unsettled`, or how its job was found (`hour`: no job yet)
_LINES = """
CREATE TABLE line AS
WITH row AS (
  SELECT charge.*, sku.generation, sku.spot, sku.chips, sku.category, sku.name AS service,
    CASE WHEN resource GLOB 'tj-*' THEN coalesce(
      (SELECT job FROM slice WHERE slice.name = resource AND ready < usage_end_time AND gone > usage_start_time),
      (SELECT job FROM slice WHERE slice.name = resource),
      (SELECT job FROM slice WHERE slice.name = rtrim(rtrim(resource, '0123456789'), '-'))) END AS named
  FROM charge JOIN sku ON sku.id = charge.sku
), matched AS (
  SELECT *,
    CASE WHEN at < CASE WHEN late THEN :start ELSE :start / 86400000000 * 86400000000 END THEN 'before'
      WHEN at >= :settled THEN 'unsettled'
      WHEN state = 'unused reservation' THEN state
      WHEN type = 'tax' THEN type WHEN type = 'adjustment' THEN 'adjustments'
      WHEN type = 'rounding_error' THEN 'rounding'
      WHEN owner <> :owner THEN 'other tpujob backends'
      WHEN generation IS NULL AND owner <> '' THEN 'disks and addresses of slices'
      WHEN generation IS NULL THEN iif(category = 'stored bytes', coalesce(state, category), category)
      WHEN named IS NOT NULL THEN 'name'
      WHEN owner <> '' AND coalesce(job, '') NOT IN (SELECT id FROM job) THEN 'slices of removed jobs'
      WHEN resource GLOB 'tj-[0-9]*-[0-9]*' THEN iif(owner <> '', 'slices not in the ledger', 'other tpujob backends')
      WHEN owner <> '' THEN 'label'
      ELSE 'hour' END AS kind
  FROM row
)
SELECT kind,
  CASE kind WHEN 'name' THEN named WHEN 'label' THEN job WHEN 'slices not in the ledger' THEN 'job ' || job
    WHEN 'other services' THEN service ELSE '' END AS key,
  currency,
  iif(kind IN ('name', 'label', 'hour'), generation, '') AS generation,
  iif(kind IN ('name', 'label', 'hour'), spot, 0) AS spot,
  iif(kind = 'hour', zone, '') AS place, iif(kind = 'hour', usage_start_time, 0) AS start,
  iif(kind = 'hour', usage_end_time, 0) AS finish,
  count(*) AS count,
  coalesce(sum(iif(generation IS NULL, 0, CAST(round(usage * 1e6) AS INTEGER) * chips)), 0) AS usage,
  sum(generation IS NOT NULL AND usage IS NULL) AS unmeasured,
  CAST(round(sum(round(cost * 1e6) / currency_conversion_rate)) AS INTEGER) AS gross,
  CAST(round(sum(promotions / currency_conversion_rate)) AS INTEGER) AS promotions,
  CAST(round(sum(discounts / currency_conversion_rate)) AS INTEGER) AS discounts,
  sum(CAST(round(cost * 1e6) AS INTEGER) + promotions + discounts) AS native
FROM matched GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
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
  SELECT line.rowid, '', 'TPU time of others', CASE WHEN sum(weight) IS NULL THEN 1
    WHEN unmeasured THEN 0 ELSE max(0, usage * 3600 - sum(weight)) END
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
_RESULT = f"""
SELECT kind, key, currency, count, usage, unmeasured, gross, promotions, discounts, native
FROM line WHERE kind <> 'hour'
UNION ALL
SELECT share.kind, share.job, currency, iif(nth = 1, count, 0), {_PART.format("usage")},
  iif(nth = 1, unmeasured, 0), {_PART.format("gross")}, {_PART.format("promotions")}, {_PART.format("discounts")},
  {_PART.format("native")}
FROM line JOIN share ON share.line = line.rowid
"""  # noqa: S608


class LedgerSlice(NamedTuple):
    """One slice that was ever ready, as the ledger has it. Times are microseconds since the epoch."""

    job: str
    name: str
    generation: str
    zone: str
    spot: bool
    chips: int
    ready: int
    gone: int | None  #: None: still billed
    rate: int | None  #: micro-dollars an hour; None: not known
    granted: bool  #: a grant pays for it

    def until(self, end: int) -> int:
        return end if self.gone is None else min(self.gone, end)

    def cost(self, start: int, end: int) -> int:
        """Return the micro-dollars by list price in that time, as far as a price is known."""
        return 0 if self.rate is None else between(self.rate, self.ready, start, self.until(end))


def reconcile(
    paths: Sequence[Path],
    jobs: Mapping[str, str],
    slices: Sequence[LedgerSlice],
    owner: str,
    now: int,
    *,
    since: int | None = None,
    until: int | None = None,
) -> Reconciled:
    """Compare bill and ledger from `since` to `until`, which are midnights, UTC; by default from the first row that is
    on the invoice of its own month, until what may still be missing from the export. `jobs`: all names, by id; `owner`:
    the value of our backend's label. Raises BadRequest for files that cannot be read."""
    db = sqlite3.connect("")  # a temporary file
    try:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _LEDGER)
        duplicates = load(db, paths)
        newest, first = db.execute(
            "SELECT max(export_time), min(iif(late, NULL, usage_start_time)) FROM charge"
        ).fetchone()
        settled = (newest - SETTLED_AFTER) // DAY * DAY if until is None else until
        start = min(settled, newest if first is None else first) if since is None else since
        end = min(settled, now)
        _insert_ledger(db, jobs, slices, now)
        db.execute(_LINES, {"start": start, "settled": settled, "owner": owner})
        db.execute(_SHARES)
        lines = _ledger_lines(jobs, slices, start, end)
        billed, sums = _add_bill(db, lines)
    finally:
        db.close()
    before, unsettled = sums.pop(("before", ""), Totals()), sums.pop(("unsettled", ""), Totals())
    others = [OtherLine(*place, totals) for place, totals in sums.items()]
    others.sort(key=lambda o: (CATEGORIES.index(o.category), -o.billed.net, o.name))
    whole = JobLine("", "")
    compared = [
        line for line in lines.values() if line.chip_time or line.billed.rows or line.matched
    ]
    for line in compared:
        line.compare_usage()
        whole.add(line)
    return Reconciled(
        start, end, newest, duplicates,
        tuple(sorted(compared, key=lambda line: (-abs(line.gap), line.job))), tuple(others), before, unsettled,
        unsettled_estimate=_estimate(slices, end, now),
        earlier_estimate=_estimate(slices, 0, start),
        tpu=whole, billed=billed,
    )  # fmt: skip


def _insert_ledger(
    db: sqlite3.Connection, jobs: Iterable[str], slices: Iterable[LedgerSlice], now: int
) -> None:
    db.executemany("INSERT INTO job VALUES (?)", ((job,) for job in jobs))
    rows = (
        (s.job, s.name, s.generation, s.spot, s.zone, s.chips, s.ready, s.until(now))
        for s in slices
    )
    db.executemany("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _add_bill(
    db: sqlite3.Connection, lines: Mapping[str, JobLine]
) -> tuple[Totals, dict[tuple[str, str], Totals]]:
    """Add the matched rows to the lines of their jobs. Return the sum of all, and of those of no job by their kind."""
    billed, sums = Totals(), defaultdict[tuple[str, str], Totals](Totals)
    for kind, key, currency, *figures, native in db.execute(_RESULT):
        totals = Totals(*figures)
        totals.by_currency[currency] = native
        billed.add(totals)
        if kind in ("name", "label", "hour"):
            lines[key].matched.add(kind)
            lines[key].billed.add(totals)
        else:
            sums[kind, key].add(totals)
    return billed, sums


def _ledger_lines(
    jobs: Mapping[str, str], slices: Sequence[LedgerSlice], start: int, end: int
) -> dict[str, JobLine]:
    lines = {job: JobLine(job, name) for job, name in jobs.items()}
    for slice in slices:
        line, cost = lines[slice.job], slice.cost(start, end)
        time = slice.chips * max(0, slice.until(end) - max(slice.ready, start))
        line.chip_time += time
        line.unpriced += time if slice.rate is None else 0
        line.list += cost
        line.estimate += 0 if slice.granted else cost
    return lines


def _estimate(slices: Sequence[LedgerSlice], start: int, end: int) -> int:
    return sum(slice.cost(start, end) for slice in slices if not slice.granted)
