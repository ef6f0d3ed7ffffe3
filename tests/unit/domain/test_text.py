"""Text that a stranger wrote stays text; durations and numbers of things read as people write them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.domain.text import clean, duration, list_hosts, many, one_line, with_article

HOSTILE = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07after", "after"),
    ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]0;never ended", ""),
    ("\x1b]0;never ended\nnext", " next"),
    ("a\x1b[2Jb\x1bcc", "abc"),
    ("\x1b", ""),
    ("\x9b31mred", "red"),
    ("\x9d0;title\x9cafter", "after"),
    ("bell\x07 back\x08space", "bell backspace"),
    ("a\x00b", "ab"),
    ("over\rwrite\nline\u2028and\u2029more", "over write line and more"),
    ("a\tb", "a   b"),
    ("    indented", "    indented"),
    ("abc\u202edcb\u202c", "abcdcb"),
    ("\u061cx\u200ey\u200fz", "xyz"),
    ("zero\u200bwidth\ufeff", "zerowidth"),
    ("a\u200cb\u200dc\u2060d\u00ade\u180ef\u034fg", "abcdefg"),
    ("blank\u3164\u115f\u1160\uffa0", "blank"),
    ("tag\U000e0001\U000e0041", "tag"),
    ("\ufffd, ünï — שלום, 訓練", "\ufffd, ünï — שלום, 訓練"),
    ("\ud800", ""),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_nothing_that_a_terminal_obeys_or_hides_is_left(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert one_line(text, 80) == " ".join(shown.split())


@given(st.text())
def test_clean_text_has_nothing_left_to_clean(text: str) -> None:
    shown = clean(text)
    assert clean(shown) == shown
    categories = {unicodedata.category(c) for c in shown}
    assert not categories & {"Cc", "Cs", "Zl", "Zp"}
    assert not any(unicodedata.bidirectional(c) in MARKS for c in shown)


MARKS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}


def test_tabs_are_kept_where_asked_for() -> None:
    assert clean("\tb\x1b[1m\tc\u200b", tabs=True) == "\tb\tc"


def test_a_long_line_is_cut() -> None:
    assert one_line("a  b\n\tc" * 100, 7) == "a b ca "


def test_a_million_unended_escapes_are_cleaned_in_linear_time() -> None:
    assert clean("\x1b]" * 500_000 + "\n" + "\x1b[" * 500_000) == " "


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3600, "60 min"),
        (5400, "1.5 h"),
        (7200, "2 h"),
        (8000, "2.2 h"),
        (40 * 3600, "40 h"),
        (86400 * 90, "90 days"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_numbers_of_things() -> None:
    assert [many(n, "host") for n in (0, 1, 2)] == ["0 hosts", "1 host", "2 hosts"]
    assert [list_hosts([3]), list_hosts([0, 4])] == ["host 3", "hosts 0, 4"]


def test_a_noun_has_its_article() -> None:
    assert with_article("spot v4-8") == "a spot v4-8"
    assert with_article("on-demand v4-8") == "an on-demand v4-8"
