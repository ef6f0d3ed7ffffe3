"""The sums of an export, against an independent sum over the raw rows, to the micro-unit."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from tests.unit.billing.bill import (
    CREDIT_TYPES,
    DAY,
    START,
    Noise,
    Row,
    Use,
    rows_of,
    write_csv,
    write_json_lines,
    write_json_list,
)
from tpujob.billing import LedgerSlice, Reconciled, reconcile
from tpujob.billing.categories import CATEGORIES

NOW = round((START + 60 * DAY) * 1e6)
JOBS = {"000007": "digits"}
SLICES = [
    LedgerSlice("000007", "tj-000007-1-lab-x", "v5e", "us-west4-a", True, 8, round((START + 3600) * 1e6),
                round((START + 40_000) * 1e6), 3_840_000, granted=False)
]  # fmt: skip


def _rows() -> list[Row]:
    use = Use(
        "000007",
        "tj-000007-1-lab-x",
        "v5e",
        "us-west4-a",
        True,
        8,
        START + 3600,
        START + 40_000,
        "0.48",
    )
    noise = Noise(random.Random(7)).make(8_000)
    euros = Noise(random.Random(8), currency=("EUR", 0.8723)).make(1_000)
    rows = [*rows_of(use), *noise, *euros]
    rows += random.Random(9).sample(rows, 200)  # identical rows are legal
    random.Random(10).shuffle(rows)
    return rows


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found = _rows()
    assert len(found) > 10_000
    assert {c.get("type") for row in found for c in row["credits"]} >= set(CREDIT_TYPES)
    return found


def _read(*paths: Path) -> Reconciled:
    return reconcile(paths, JOBS, SLICES, "lab-x", NOW)


def _micros(value: object) -> int:
    return int((Decimal(str(value)) * 1_000_000).to_integral_value(ROUND_HALF_UP))


def _independent(rows: list[Row]) -> dict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        found[row["currency"]] += _micros(row["cost"])
        found[row["currency"]] += sum(_micros(credit["amount"]) for credit in row["credits"])
    return dict(found)


@pytest.fixture(scope="module")
def whole(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Reconciled:
    path = tmp_path_factory.mktemp("export") / "export.json.gz"
    found = _read(write_json_lines(path, rows))
    assert found.billed.rows == len(rows)
    return found


def test_every_row_is_counted_once_to_the_micro_unit(rows: list[Row], whole: Reconciled) -> None:
    assert whole.billed.by_currency == _independent(rows)
    parts = [line.billed for line in (*whole.jobs, *whole.others)] + [whole.before, whole.unsettled]
    summed: defaultdict[str, int] = defaultdict(int)
    for part in parts:
        for currency, micros in part.by_currency.items():
            summed[currency] += micros
    assert summed == _independent(rows), "jobs and headings add up to the bill"
    assert sum(part.rows for part in parts) == len(rows)


def test_nothing_is_without_a_heading(whole: Reconciled) -> None:
    wanted = set(CATEGORIES) - {
        "slices of removed jobs",
        "slices not in the ledger",
        "disks and addresses of slices",
    }
    assert {line.category for line in whole.others} == wanted
    assert whole.before.rows > 500, "late rows are told apart"
    assert whole.unsettled.rows == 0, "corrections of September were exported long after August"


def test_every_form_of_the_file_says_the_same(rows: list[Row], tmp_path: Path) -> None:
    some = rows[:1_000]
    files = [
        write_json_lines(tmp_path / "export.json", some),
        write_json_list(tmp_path / "list.json", some),
        write_csv(tmp_path / "dots.csv", some, between="."),
        write_csv(tmp_path / "lines.csv", some, between="_", shuffle=3),
    ]
    first, *others = [_lines(_read(path)) for path in files]
    for path, other in zip(files[1:], others, strict=True):
        assert other == first, path.name


def _lines(found: Reconciled) -> list[tuple[str, str, int, int]]:
    jobs = [(line.job, "", line.billed.net, line.billed.usage) for line in found.jobs]
    return jobs + [(o.category, o.name, o.billed.net, o.billed.usage) for o in found.others]


def test_a_file_that_is_given_twice_counts_once(rows: list[Row], tmp_path: Path) -> None:
    some = rows[:500] + rows[:50]  # identical rows are legal
    once = _read(write_json_lines(tmp_path / "whole.json", some))
    again = write_csv(tmp_path / "again.csv", some, between="_")
    twice = _read(tmp_path / "whole.json", again, tmp_path / "whole.json")
    assert _lines(twice) == _lines(once)
    assert (twice.billed.rows, twice.duplicates) == (len(some), 2 * len(some))


def test_exports_that_overlap_count_once(tmp_path: Path) -> None:
    some = list({json.dumps(row): row for row in Noise(random.Random(5)).make(400)}.values())
    whole = _read(write_json_lines(tmp_path / "whole.json", some))
    halves = (
        write_json_lines(tmp_path / "a.json", some[:300]),
        write_json_lines(tmp_path / "b.json.gz", some[200:]),
    )
    overlapping = _read(*halves)
    assert _lines(overlapping) == _lines(whole)
    assert overlapping.billed.rows == len(some)
