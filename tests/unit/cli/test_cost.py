"""`tpujob cost`: what is printed of a report, as a page, as CSV and as JSON."""

import csv
import io

import pytest

from tests.support.golden import golden
from tests.support.scripted import ScriptedJobs, cost_row, cost_view
from tests.unit.cli.conftest import Tpujob
from tpujob.cli.commands.cost.report import cost_page
from tpujob.cli.render.text import width
from tpujob.service.money.cost_csv import cost_csv


def test_the_page() -> None:
    """An unknown price is never a zero."""
    unknown = cost_row("000042", unpriced_chip_hours=4.0, list_micros=0, pay_micros=0)
    partly_known = cost_row("000042", unpriced_chip_hours=1.0)
    views = {
        "in the cloud": cost_view(),
        "on the emulator": cost_view(emulated=True),
        "without prices": cost_view(rows=[unknown], total=unknown),
        "with some prices": cost_view(rows=[partly_known], total=partly_known),
        "not over": cost_view(total=cost_row("total", open_slices=2, least_micros=3_000_000)),
        "of a month, divided": cost_view(
            by="share",
            then="type",
            since="2026-11-01",
            until="2026-11-30",
            rows=[cost_row("vision", then="v4-16"), cost_row("", then="v5e-8")],
        ),
        "of a period without jobs": cost_view(
            since="2026-11-01", rows=[], total=cost_row("total", parts=[])
        ),
        "with copies": cost_view(copies_micros=20_480_000),
        "without jobs": cost_view(rows=[], total=cost_row("total", parts=[])),
    }
    golden("cost-report", {case: cost_page(view, 100) for case, view in views.items()})


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits(columns: int) -> None:
    page = cost_page(cost_view(rows=[cost_row("0" * 60)] * 2), columns)
    assert max(map(width, page.splitlines())) <= columns


def test_csv_of_two_groups_has_a_column_for_each() -> None:
    view = cost_view(by="user", then="day", rows=[cost_row("ada", then="2026-11-01")])
    rows = list(csv.DictReader(io.StringIO(cost_csv(view))))
    assert {(row["user"], row["day"]) for row in rows} == {("ada", "2026-11-01")}


def test_csv_has_a_line_for_each_part_in_micro_dollars() -> None:
    rows = list(csv.DictReader(io.StringIO(cost_csv(cost_view()))))
    assert [(r["job"], r["part"], r["list_micros"]) for r in rows] == [
        ("000042", "productive", "2457333"),
        ("000042", "waiting", "0"),
        ("000042", "redone", "1228667"),
    ]


def test_the_command(tpujob: Tpujob, api: ScriptedJobs) -> None:
    output = tpujob("cost", "report", "--by", "user", "--user", "ada").out
    assert "List prices of TPU slices" in output
    asked = {"by": "user", "then": "", "user": "ada", "job": "", "since": "", "until": ""}
    assert api.named("cost") == [asked]
    tpujob("cost", "report", "--by", "user", "--then", "day", "--month", "2026-02")
    asked |= {"then": "day", "user": "", "since": "2026-02-01", "until": "2026-02-28"}
    assert api.named("cost")[-1] == asked
    wrong = ("cost", "report", "--month", "2026-02", "--since", "2026-02-01")
    assert "give --month, or --since and --until" in tpujob(*wrong, code=2).err
    assert "'feb' is not a month" in tpujob("cost", "report", "--month", "feb", code=2).err
    assert tpujob("cost", "report", "--json").json == api.costs
    assert tpujob("cost", "report", "--csv").out.startswith("job,name,part,")
    assert "one of --json and --csv" in tpujob("cost", "report", "--csv", "--json", code=2).err
    assert "--by" in tpujob("cost", "report", "--by", "moon", code=2).err
