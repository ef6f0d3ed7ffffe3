"""Seeds that are played on every test run, and that playing one twice gives the same history, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import planted
from tests.simulation.play import play
from tests.simulation.shrink import Small, command, history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: seeds that once showed a bug: an old look acted upon (107, 110, 141), a lease that had run out (9, 102),
#: a slice that died silently during set-up (20)
VIOLATED_ONCE = (9, 20, 102, 107, 110, 141)


@pytest.mark.parametrize("seed", [*range(8), *VIOLATED_ONCE])
def test_every_invariant_holds(seed: int) -> None:
    result = play(seed)
    if result.violation:
        shown = "\n".join(history(result))
        pytest.fail(f"{result.violation}\n{shown}\nreplay: {command(Small(seed, result))}")


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    digests = {_digest_in_a_new_process(3, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert digests == {play(3).digest}


def _digest_in_a_new_process(seed: int, hash_seed: str) -> str:
    code = f"from tests.simulation.play import play; print(play({seed}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_a_violation_is_shown_with_its_history_and_how_to_replay_it() -> None:
    with planted("gone_at_first_sight"):
        result = play(0)
    assert result.violation
    assert result.violation.rule == "I5"
    assert "VIOLATION I5" in history(result)[-1]
    small = Small(0, result, off=frozenset({"pause", "kill_after"}), jobs=1)
    words = "python -m tests.simulation --seed 0 --jobs 1 --off kill_after,pause"
    assert command(small) == words
