"""A kill, a pause or a cancel at one point of every story; `make sim` takes many points."""

import random

import pytest

from tests.support.simulation.killpoints import Point, points
from tests.support.simulation.scenarios import SCENARIOS, tell

pytestmark = pytest.mark.timeout(300)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_or_a_cancel_spoils_nothing(name: str) -> None:
    """`points` also plays the story without a kill, which must end as it should."""
    [point] = random.Random(name).sample(points(name), 1)
    violation = point.play()
    if violation:
        pytest.fail(f"{violation}\n{_story(violation)}\nreplay: {point.command()}")


def _story(violation: BaseException) -> str:
    return "\n".join("\n".join(violation.__notes__).splitlines()[-60:])


def test_the_same_story_has_the_same_history_twice() -> None:
    first, second = (tell(SCENARIOS["two backends"]).sim.log for _ in range(2))
    assert first == second
    assert Point("happy", 3, "before").command().endswith("'happy:3:before'")
