"""`tpujob cost reconcile`: what is printed of a bill beside the ledger."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.support.golden import golden
from tests.support.scripted import ScriptedJobs
from tests.unit.billing.bill import DAY, HOUR, START, Use, blank, rows_of, write_json_lines
from tests.unit.cli.conftest import Tpujob
from tpujob.api import LedgerJobView, LedgerSliceView, LedgerView
from tpujob.cli.render.text import width

USES = [
    Use("000041", "tj-000041-1-lab-x", "v4", "us-central2-b", True, 8, START, START + 10 * HOUR, "0.9215"),
    Use("000042", "tj-000042-1-lab-x", "v6e", "us-east1-d", True, 16, START, START + 5 * HOUR, "0.6"),
]  # fmt: skip


@pytest.fixture
def export(api: ScriptedJobs, tmp_path: Path) -> Path:
    """A bill of two jobs, of which the second was dearer than the ledger thought."""
    api.ledger_view = LedgerView(
        at=round((START + 60 * DAY) * 1e6),
        owner="lab-x",
        jobs=[LedgerJobView(job=u.job, name=f"job{n}", slices=[_slice(u)]) for n, u in enumerate(USES)],
    )  # fmt: skip
    rows = [row for use in USES for row in rows_of(use)]
    later = blank(START + 9 * DAY, cost=3.5)
    return write_json_lines(tmp_path / "export.json.gz", [*rows, later])


def _slice(use: Use) -> LedgerSliceView:
    return LedgerSliceView(
        slice=use.slice,
        generation=use.generation,
        zone=use.zone,
        pricing="spot",
        chips=use.chips,
        ready=round(use.start * 1e6),
        gone=round(use.end * 1e6),
        micros_per_hour={"v4": 7_372_000, "v6e": 8_000_000}[use.generation],
        granted=False,
    )


def test_the_page_names_what_differs(tpujob: Tpujob, export: Path) -> None:
    page = tpujob("cost", "reconcile", str(export), code=6).out
    golden("reconcile", page)
    assert max(map(width, page.splitlines())) <= 80


def test_a_tolerance_and_a_period(tpujob: Tpujob, export: Path) -> None:
    assert "No job differs" in tpujob("cost", "reconcile", str(export), "--tolerance", "30").out
    wide = tpujob("cost", "reconcile", str(export), "--until", "2026-08-20", code=6).out
    assert "not settled" not in wide
    assert "stored bytes" in wide
    narrow = tpujob("cost", "reconcile", str(export), "--since", "2026-08-05").out
    assert "TPU time of jobs," not in narrow


def test_for_programs(tpujob: Tpujob, export: Path) -> None:
    found = tpujob("cost", "reconcile", str(export), "--json", code=6).json
    assert [(job["key"], job["gap_micros"], job["differs"]) for job in found["jobs"]] == [
        ("000042", 8_000_000, True),
        ("000041", 0, False),
    ]
    assert found["total"]["billed_micros"] == 125_220_000
    assert found["unsettled"]["billed_micros"] == 3_500_000
    rows = list(
        csv.DictReader(io.StringIO(tpujob("cost", "reconcile", str(export), "--csv", code=6).out))
    )
    assert [(row["kind"], row["billed_micros"]) for row in rows] == [
        ("job", "48000000"), ("job", "73720000"), ("before", "0"), ("unsettled", "3500000"),
    ]  # fmt: skip


def test_bad_input(tpujob: Tpujob, export: Path) -> None:
    assert "No such file" in tpujob("cost", "reconcile", "nowhere.csv", code=2).err
    assert (
        "one of --json" in tpujob("cost", "reconcile", str(export), "--json", "--csv", code=2).err
    )
    turned = tpujob(
        "cost", "reconcile", str(export), "--since", "2026-08-05", "--until", "2026-08-04", code=2
    )
    assert "--since has to be before --until" in turned.err
