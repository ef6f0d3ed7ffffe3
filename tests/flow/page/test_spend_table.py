"""The drawing of spend: bars of days, and the table of two groups."""

from tests.support.scripted import cost_row
from tpujob.domain.money.period import ALWAYS, Period
from tpujob.web.pages import spend


def test_days_without_spending_have_their_place() -> None:
    amounts = {"2026-11-02": 4, "2026-11-04": 2}
    bars = spend.day_bars(amounts, ALWAYS, "2026-11-05")
    assert [(bar.day[-1], bar.height) for bar in bars] == [
        ("2", 100),
        ("3", 0),
        ("4", 50),
        ("5", 0),
    ]
    assert all(bar.x + bar.width <= 100 for bar in bars)
    month = spend.day_bars(amounts, Period("2026-11-01", "2026-11-30"), "2026-11-05")
    assert (month[0].day, month[-1].day) == ("2026-11-01", "2026-11-05"), "no bar of the future"
    long = spend.day_bars({"2020-01-01": 1, "2026-11-01": 1}, ALWAYS, "2026-11-05")
    assert (len(long), long[-1].day) == (spend.DAYS, "2026-11-05")
    assert spend.day_bars({}, ALWAYS, "2026-11-05") == []
    assert spend.day_bars({"2026-11-05": 3}, ALWAYS, "2026-11-05") == [], "one bar says nothing"


def test_a_table_of_two_groups_keeps_what_has_no_column_in_its_sums() -> None:
    days = [f"2026-{month:02d}-{day:02d}" for month in (10, 11) for day in range(1, 29)]
    rows = [cost_row("ada", then=day, list_micros=1) for day in days]
    rows.append(cost_row("bob", then=days[-1], list_micros=5))
    table = spend.pivot(rows)
    assert (len(table.columns), table.left_out) == (spend.COLUMNS, len(days) - spend.COLUMNS)
    ada, bob = table.rows
    assert (ada[0], ada[3], bob[3]) == ("ada", len(days), 5)
    assert bob[2] == [None] * (spend.COLUMNS - 1) + [5]
    assert table.sums[-1] == 6
