"""A seed that is played twice gives the same history, byte for byte."""

import os
import subprocess
import sys

import pytest

from tests.support.simulation.__main__ import seeds
from tests.support.simulation.bugs import BUGS
from tests.support.simulation.play import play
from tests.support.simulation.profile import NEW, Seed
from tests.support.simulation.shrink import command, history

pytestmark = pytest.mark.timeout(300)

LAB = NEW | {"lab"}


def test_seeds_that_showed_a_bug_once_are_played_again_and_none_twice() -> None:
    played = seeds(100, 0, 0.0)
    old = {(10, False), (28, False), (31173, True)}
    assert {Seed(number, short, LAB) for number, short in old} <= {*played}
    assert len(played) == len({*played}) > 110
    assert {seed.number for seed in played} >= {*range(100)}
    part = seeds(6, 0, 0.0, full=3)
    assert {*part} < {*seeds(6, 0, 0.0)}
    assert sum(not seed.short for seed in part) == 4  # seed 0 as it was, and in a lab
    assert Seed(31173, short=True, off=LAB) in part


@pytest.mark.slow
def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    digests = {_digest_in_a_new_process(3, hash_seed) for hash_seed in ("1", "4711")}
    assert digests == {play(3, jobs=2, hours=2).digest}


def _digest_in_a_new_process(seed: int, hash_seed: str) -> str:
    code = f"from tests.support.simulation.play import play; print(play({seed}, jobs=2, hours=2).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_a_violation_is_shown_with_its_history_and_how_to_replay_it() -> None:
    with BUGS["create_before_intent"].plant():
        result = play(0)
    assert result.violation
    assert result.violation.rule == "I6"
    assert "VIOLATION I6" in history(result)[-1]
    small = Seed(0, off=frozenset({"pause", "kill_after"}), jobs=1, hours=3.0)
    words = "python -m tests.support.simulation --seed 0 --jobs 1 --hours 3 --off kill_after,pause"
    assert command(small) == words
