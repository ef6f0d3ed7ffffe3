"""The simulation catches every bug that is planted: otherwise its silence would mean nothing."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.play import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WITHIN = 40  #: seeds


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with planted(name):
        caught = next((seed for seed in range(WITHIN) if play(seed).violation), None)
    assert caught is not None, f"{name} went unnoticed in {WITHIN} seeds"
