"""Text that a stranger wrote stays text, and takes the columns that it is measured to take."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.cli.render.text import clip, clip_middle, clock, pad, width
from tpujob.domain.text import clean, count, number, seconds, span, usd


@given(st.text().map(clean), st.integers(1, 40))
def test_cut_and_filled_text_has_the_width_asked_for(text: str, columns: int) -> None:
    for cut in (clip, clip_middle):
        cut_text = cut(text, columns)
        assert width(cut_text) <= columns
        assert width(pad(cut_text, columns)) == columns
        assert cut_text == text or "…" in cut_text


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert width("訓練") == 4
    assert width("e\u0301") == 1
    assert clip("訓練ジョブ", 6) == "訓練…"
    assert clip_middle("europe-west4-b", 10) == "europ…t4-b"


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        (span, {0: "0s", 59.9: "59s", 130: "2m10s", 11_100: "3h05m", 360_000: "4d04h"}),
        (count, {0: "0", 9999: "9999", 12000: "12.0k", 250_000: "250k", 1_500_000: "1.5M"}),
        (usd, {None: "price unknown", 0: "$0.00", 4e-7: "under $0.0001", 0.0042: "$0.0042"}),
        (usd, {1234.5: "$1,234.50"}),
        (number, {None: "-", 0.00031: "0.00031", 52_291.4: "52,291", 3e12: "3e+12"}),
    ],
)
def test_figures(form: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: form(value) for value in texts} == texts


def test_an_invalid_time_is_tolerated() -> None:
    assert seconds("yesterday") is None
    assert seconds("2026-01-02T03:04:05Z") == seconds("2026-01-02T04:04:05+01:00")
    assert clock("yesterday") == "--:--:--"
