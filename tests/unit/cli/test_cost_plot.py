"""`tpujob cost report --plot`: which bars are drawn, and what the command writes and refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.scripted import ScriptedJobs, cost_row, cost_view
from tests.unit.cli.conftest import Tpujob
from tpujob.cli.commands.cost.plot import BANDS, bars, draw
from tpujob.cli.commands.cost.report import MEANING

DAYS = cost_view(by="day", rows=[cost_row("2026-08-01"), cost_row("2026-08-04")])


def test_every_day_has_a_bar_and_its_dollars_add_up() -> None:
    found = bars(DAYS)
    assert [bar.day.day for bar in found] == [1, 2, 3, 4]
    assert sum(found[0].dollars) == pytest.approx(3.686)
    assert found[0].goodput == pytest.approx(8 / 15)
    assert (sum(found[1].dollars), found[1].goodput) == (0.0, None)


def test_many_days_become_weeks() -> None:
    found = bars(
        cost_view(
            by="day", rows=[cost_row("2026-01-01"), cost_row("2026-01-02"), cost_row("2026-08-01")]
        )
    )
    assert len(found) == 31
    assert sum(found[0].dollars) == pytest.approx(2 * 3.686)
    assert found[-1].day.isoformat() == "2026-07-30"
    assert sum(found[-1].dollars) == pytest.approx(3.686), "no day is left out"


def test_every_part_that_is_billed_has_one_colour() -> None:
    drawn = [part for band in BANDS for part in band.parts]
    assert sorted(drawn) == sorted(set(MEANING) - {"waiting", "provisioning"})


def test_both_formats_and_the_same_file_each_time() -> None:
    assert draw(DAYS, "png").startswith(b"\x89PNG\r\n")
    picture = draw(DAYS, "svg")
    assert picture.startswith(b"<?xml")
    assert picture == draw(DAYS, "svg")
    assert all(
        band.color.lower().encode() in picture
        for band in BANDS
        if band.parts[0] in ("productive", "redone")
    )


def test_the_command(tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path) -> None:
    api.costs = DAYS
    ran = tpujob("cost", "report", "--by", "user", "--plot", str(tmp_path / "cost.svg"))
    assert "drew" in ran.err
    assert "You pay" in ran.out, "the report is printed as well"
    assert [call["by"] for call in api.named("cost")] == ["user", "day"]
    assert b"</svg>" in (tmp_path / "cost.svg").read_bytes()
    assert [path.name for path in tmp_path.glob("*cost*")] == ["cost.svg"]


def test_bad_input(
    tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "should end in .svg or .png" in tpujob("cost", "report", "--plot", "a.pdf", code=2).err
    api.costs = cost_view(by="day", rows=[], total=cost_row("total", parts=[]))
    assert "nothing to draw" in tpujob("cost", "report", "--plot", "a.png", code=2).err
    api.costs = DAYS
    nowhere = str(tmp_path / "no" / "a.png")
    assert (
        "cannot be written: No such file" in tpujob("cost", "report", "--plot", nowhere, code=1).err
    )
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    missing = tpujob("cost", "report", "--plot", "a.png", code=1).err
    assert "pip install 'tpujob[plot]'" in missing
