"""Seeds that are played on every test run, and that playing one twice gives the same history, byte for byte.

`make sim` plays many more, new ones among them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants import planted
from tests.simulation.play import play
from tests.simulation.shrink import Small, command, history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LINES = (Path(__file__).parent / "seeds.txt").read_text().splitlines()
VIOLATED_ONCE = [line for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize("line", VIOLATED_ONCE)
def test_seeds_that_violated_something_once_hold(line: str) -> None:
    number, _, short = line.partition(" ")
    small = Small(int(number), play(int(number), short=bool(short)), bool(short))
    if small.result.violation:
        shown = "\n".join(history(small.result))
        pytest.fail(f"{small.result.violation}\n{shown}\nreplay: {command(small)}")


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    digests = {_digest_in_a_new_process(3, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert digests == {play(3, jobs=3, hours=4).digest}


def _digest_in_a_new_process(seed: int, hash_seed: str) -> str:
    code = f"from tests.simulation.play import play; print(play({seed}, jobs=3, hours=4).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_a_violation_is_shown_with_its_history_and_how_to_replay_it() -> None:
    with planted("create_before_intent"):
        result = play(0)
    assert result.violation
    assert result.violation.rule == "I6"
    assert "VIOLATION I6" in history(result)[-1]
    small = Small(0, result, off=frozenset({"pause", "kill_after"}), jobs=1, hours=3.0)
    words = "python -m tests.simulation --seed 0 --jobs 1 --hours 3 --off kill_after,pause"
    assert command(small) == words
