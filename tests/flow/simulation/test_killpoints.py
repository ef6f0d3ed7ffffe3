"""Kills and cancels at some points of every story; `make sim` takes them all."""

import random

import pytest

from tests.support.simulation.killpoints import Point, points
from tests.support.simulation.scenarios import SCENARIOS, tell

pytestmark = pytest.mark.timeout(300)

TAKEN = 1  #: of each story


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_or_a_cancel_spoils_nothing(name: str) -> None:
    """Also that the story, left alone, ends as it should."""
    every = points(name)
    for point in random.Random(name).sample(every, min(TAKEN, len(every))):
        violation = point.play()
        if violation:
            pytest.fail(f"{violation}\n{_story(violation)}\nreplay: {point.command()}")


def _story(violation: BaseException) -> str:
    return "\n".join("\n".join(violation.__notes__).splitlines()[-60:])


def test_the_same_story_has_the_same_history_twice() -> None:
    first, second = (tell(SCENARIOS["two backends"]).sim.log for _ in range(2))
    assert first == second
    assert Point("happy", 3, "before").command().endswith("'happy:3:before'")
