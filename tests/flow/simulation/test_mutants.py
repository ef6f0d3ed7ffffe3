"""The simulation catches every bug that is planted: otherwise its silence would mean nothing."""

import logging
from collections.abc import Iterator

import pytest

from tests.support.simulation.bugs import BUGS, play_with_bug
from tests.support.simulation.scenarios import SCENARIOS, tell

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True, scope="module")
def nothing_stays_planted() -> Iterator[None]:
    """A bug that outlived its test would be caught in the place of every later one. What they log is not shown."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    tell(SCENARIOS["happy"])


def test_every_invariant_has_a_bug_that_breaks_it() -> None:
    rules = {*(f"I{number}" for number in range(1, 18)), "L1", "L2", "L3", "L4", "P1"}
    rules |= {f"Q{number}" for number in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}
    assert {bug.rule for bug in BUGS.values()} == rules
    assert len(BUGS) >= 95


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught_where_it_shows(name: str) -> None:
    """By the invariant that it breaks. `python -m tests.support.simulation --where BUG` finds another place."""
    broken = play_with_bug(name, BUGS[name].where)
    assert broken, f"{name} went unnoticed in {BUGS[name].where!r}"
    assert broken.rule == BUGS[name].rule, str(broken)
