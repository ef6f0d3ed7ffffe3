"""The simulation catches every bug that is planted: otherwise its silence would mean nothing."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.play import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WITHIN = 40  #: seeds
#: a seed that is known to catch a bug which takes many: tried first, as it saves time
QUICK = {
    "acts_on_an_old_look": 15,
    "hang_by_the_clock_alone": 12,
    "idempotency_key_is_ignored": 3,
    "launches_take_for_ever": 4,
    "no_fencing_and_no_lease": 2,
    "nobody_is_left_behind": 11,
    "nobody_waits_for_the_condemned_program": 13,
    "ready_is_trusted": 2,
    "success_on_one_host": 2,
}


def test_enough_bugs_are_planted() -> None:
    assert len(MUTANTS) >= 40


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    first = [QUICK[name]] if name in QUICK else []
    with planted(name):
        caught = next((s for s in [*first, *range(WITHIN)] if play(s).violation), None)
    assert caught is not None, f"{name} went unnoticed in {WITHIN} seeds"
