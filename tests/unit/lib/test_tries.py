"""Exponential backoff."""

import pytest

from tpujob.lib.tries import Backoff


def test_each_pause_is_twice_as_long_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3.0)
    assert [backoff.pause(failures) for failures in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 3.0), (0.5, 4.0), (1.0, 5.0)])
def test_callers_that_failed_together_retry_apart(chance: float, pause: float) -> None:
    assert Backoff(first=2.0, longest=60.0).pause(2, chance) == pause
