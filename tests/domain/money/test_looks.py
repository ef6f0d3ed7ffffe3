"""Reports are looked at in the way that costs less."""

from __future__ import annotations

import pytest

from tpujob.domain.money import looks
from tpujob.domain.prices import LIST


@pytest.mark.parametrize(
    ("objects", "pages", "of_all", "by_name"),
    [
        (1, 1, 1, True),
        (24, 1, 1, True),  # 24 x $0.0004 / 4 s is less than $0.0050 / 2 s
        (25, 1, 1, False),
        (12, 1, 5, True),  # both serve for 10 s
        (13, 1, 5, False),
        (62, 5, 5, True),  # most of what lies there belongs to attempts that are over
        (4000, 5, 5, False),
    ],
)
def test_objects_are_looked_at_by_name_while_a_list_costs_more(
    objects: int, pages: int, of_all: int, *, by_name: bool
) -> None:
    assert looks.by_name(objects, pages, of_all=of_all, prices=LIST) is by_name


def test_a_list_of_more_pages_serves_for_longer() -> None:
    assert [looks.list_lasts(pages) for pages in (0, 1, 3, 100)] == [2, 2, 6, 10]
    assert [looks.by_name_lasts(pages) for pages in (0, 1, 3, 100)] == [4, 4, 6, 10]
