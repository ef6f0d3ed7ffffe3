"""Periods: whole days, and months."""

import pytest

from tpujob.domain.money.period import ALWAYS, Period, day_of, month_of
from tpujob.errors import BadRequest


@pytest.mark.parametrize(
    ("month", "last"),
    [("2026-11", "30"), ("2026-12", "31"), ("2024-02", "29"), ("2026-02", "28"), ("9999-12", "31")],
)
def test_a_month_has_all_its_days(month: str, last: str) -> None:
    assert month_of(month) == Period(f"{month}-01", f"{month}-{last}")


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-1", "november", "2026-11-01"])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a month"):
        month_of(text)


def test_both_bounds_are_within_and_none_is_no_bound() -> None:
    week = Period("2026-11-02", "2026-11-08")
    days = ("2026-11-01", "2026-11-02", "2026-11-08", "2026-11-09")
    assert [week.has(day) for day in days] == [False, True, True, False]
    assert all(ALWAYS.has(day) for day in days)
    assert (bool(ALWAYS), bool(week)) == (False, True)
    assert day_of(0.0) == "1970-01-01"
