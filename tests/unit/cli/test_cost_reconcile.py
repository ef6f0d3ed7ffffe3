"""`tpujob cost reconcile`: what is printed of a bill beside the ledger."""

import csv
import io
from pathlib import Path

import pytest

from tests.support.bill import (
    DAY,
    HOUR,
    START,
    Use,
    blank,
    ledger_of,
    ledger_slice,
    rows_of,
    write_json_lines,
)
from tests.support.golden import golden
from tests.support.scripted import ScriptedJobs
from tests.unit.cli.conftest import Tpujob
from tpujob.cli.render.text import width

USES = [
    Use("000041", "tj-000041-1-lab-x", "v4", "us-central2-b", True, 8, START, START + 10 * HOUR, "0.9215"),
    Use("000042", "tj-000042-1-lab-x", "v6e", "us-east1-d", True, 16, START, START + 5 * HOUR, "0.6"),
]  # fmt: skip


@pytest.fixture
def export(api: ScriptedJobs, tmp_path: Path) -> Path:
    """A bill of two jobs, of which the second was dearer than the ledger thought."""
    rates = (7_372_000, 8_000_000)
    slices = [
        ledger_slice(use, micros_per_hour=rate) for use, rate in zip(USES, rates, strict=True)
    ]
    api.ledger_view = ledger_of(slices, START + 60 * DAY)
    rows = [row for use in USES for row in rows_of(use)]
    later = blank(START + 9 * DAY, cost=3.5)
    return write_json_lines(tmp_path / "export.json.gz", [*rows, later])


def test_the_page_names_what_differs(tpujob: Tpujob, export: Path) -> None:
    page = tpujob("cost", "reconcile", str(export), code=6).out
    golden("reconcile", page)
    assert max(map(width, page.splitlines())) <= 80


def test_a_tolerance_and_a_period(tpujob: Tpujob, export: Path) -> None:
    assert (
        "Jobs that differ: 0 of 2."
        in tpujob("cost", "reconcile", str(export), "--tolerance", "30").out
    )
    wide = tpujob("cost", "reconcile", str(export), "--until", "2026-08-20", code=6).out
    assert "not settled:" not in wide
    assert "Cloud Storage" in wide
    narrow = tpujob("cost", "reconcile", str(export), "--since", "2026-08-05").out
    assert "TPU time of jobs," not in narrow


def test_for_programs(tpujob: Tpujob, export: Path) -> None:
    record = tpujob("cost", "reconcile", str(export), "--json", code=6).json
    jobs = [(line["key"], line["gap_micros"], line["differs"]) for line in record["jobs"]]
    assert jobs == [("000042", 8_000_000, True), ("000041", 0, False)]
    assert record["total"]["billed_micros"] == 125_220_000
    text = tpujob("cost", "reconcile", str(export), "--csv", code=6).out
    rows = [(r["kind"], r["key"], r["billed_micros"]) for r in csv.DictReader(io.StringIO(text))]
    assert rows == [
        ("job", "000042", "48000000"),
        ("job", "000041", "73720000"),
        ("other", "not settled: newer use", "3500000"),
    ]


def test_bad_input(tpujob: Tpujob, export: Path) -> None:
    assert "No such file" in tpujob("cost", "reconcile", "nowhere.csv", code=2).err
    assert (
        "one of --json" in tpujob("cost", "reconcile", str(export), "--json", "--csv", code=2).err
    )
    turned = tpujob(
        "cost", "reconcile", str(export), "--since", "2026-08-05", "--until", "2026-08-04", code=2
    )
    assert "--since has to be before --until" in turned.err
