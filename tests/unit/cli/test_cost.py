"""`tpujob cost`: what is printed of a report, as a page, as CSV and as JSON."""

from __future__ import annotations

import csv
import io

import pytest

from tests.support.scripted import ScriptedJobs, cost_row, cost_view
from tests.unit.cli.conftest import Tpujob
from tpujob.cli.commands.cost.report import NOTHING, cost_csv, cost_page
from tpujob.cli.render.text import width


def test_a_report_says_what_was_listed_what_is_paid_and_where_the_time_went() -> None:
    lines = cost_page(cost_view(), 100).splitlines()
    assert lines[1].split() == ["000042", "digits", "1", "1", "4.000", "53.3%", "$3.69", "$0.00"]
    assert lines[2].split()[0] == "total"
    assert [line.split()[:4] for line in lines[6:9]] == [
        ["productive", "2.667", "53.3%", "$2.46"],
        ["waiting", "1.000", "20.0%", "$0.00"],
        ["redone", "1.333", "26.7%", "$1.23"],
    ]
    assert "storage and traffic are not in it" in lines[-1]


def test_the_emulator_bills_nothing() -> None:
    lines = cost_page(cost_view(emulated=True), 100).splitlines()
    assert lines[2].split()[-2:] == ["$3.69", "$0.00"]
    assert "bills nothing" in lines[-1]


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits(columns: int) -> None:
    page = cost_page(cost_view(rows=[cost_row("0" * 60)] * 2), columns)
    assert max(map(width, page.splitlines())) <= columns


def test_an_unknown_price_is_never_a_zero() -> None:
    row = cost_row("000042", unpriced_chip_hours=4.0, list_micros=0, pay_micros=0)
    page = cost_page(cost_view(rows=[row], total=row), 100)
    assert page.splitlines()[1].split()[-2:] == ["unknown", "unknown"]
    some = cost_row("000042", unpriced_chip_hours=1.0)
    said = cost_page(cost_view(rows=[some], total=some), 100)
    assert ">$3.69" in said
    assert "No price is known for 1.000 chip-hours; the amounts cover 75.0%." in said


def test_what_is_not_over_is_said() -> None:
    total = cost_row("total", open_slices=2, least_micros=3_000_000)
    said = cost_page(cost_view(total=total), 100)
    assert "2 slices still billed" in said
    assert "between $3.00 and $3.69" in said


def test_copies_into_other_regions_are_told_beside_the_slices() -> None:
    assert "Copies" not in cost_page(cost_view(), 100)
    said = cost_page(cost_view(copies_micros=20_480_000), 100)
    assert (
        "Copies of data and checkpoints into other regions: $20.48, beside these amounts." in said
    )


def test_without_jobs() -> None:
    assert cost_page(cost_view(rows=[], total=cost_row("total", parts=[])), 80) == NOTHING


def test_csv_has_a_line_for_each_part_in_micro_dollars() -> None:
    rows = list(csv.DictReader(io.StringIO(cost_csv(cost_view()))))
    assert [(r["job"], r["part"], r["list_micros"]) for r in rows] == [
        ("000042", "productive", "2457333"),
        ("000042", "waiting", "0"),
        ("000042", "redone", "1228667"),
    ]


def test_the_command(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert (
        "List prices of TPU slices" in tpujob("cost", "report", "--by", "user", "--user", "ada").out
    )
    assert api.named("cost") == [{"by": "user", "user": "ada", "job": ""}]
    assert tpujob("cost", "report", "--json").json == api.costs
    assert tpujob("cost", "report", "--csv").out.startswith("job,name,part,")
    assert "one of --json and --csv" in tpujob("cost", "report", "--csv", "--json", code=2).err
    assert "--by" in tpujob("cost", "report", "--by", "moon", code=2).err
