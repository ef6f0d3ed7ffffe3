"""The simulation catches every bug that is planted: otherwise its silence would mean nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.play import play
from tests.simulation.scenarios import SCENARIOS, tell
from tests.simulation.sim import Violation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WITHIN = 40  #: seeds, each short and in full
#: what no story shows: a short seed that is known to, tried first, as it saves time
KNOWN = {
    "a_new_backend_looks_after_nobody": 1,
    "acts_on_an_old_look": 37,
    "half_open_lets_everybody_through": 31,
    "hang_by_one_host": 2,
    "hang_while_others_are_prepared": 4,
    "idempotency_key_is_ignored": 6,
    "impatient_with_silence": 4,
    "lost_reply_is_a_failure": 1,
    "no_deadline": 0,
    "no_fencing_and_no_lease": 34,
    "silence_alone_is_death": 6,
    "start_is_not_safe_to_repeat": 6,
    "sweep_without_grace": 1,
}

#: for every invariant, a bug and the story or the short seed in which it breaks it
BREAKS: dict[str, tuple[str, str | int]] = {
    "I1": ("sweep_takes_foreign_slices", "orphans"),
    "I2": ("one_look_after_a_delete_is_enough", "cut off, and its deletion fails unseen"),
    "I3": ("half_the_hosts_are_started", "happy"),
    "I4": ("wrong_numbers_are_resumed", "a machine makes wrong numbers"),
    "I5": ("looks_agree_whenever_they_were", "missed twice, minutes apart"),
    "I6": ("create_before_intent", "happy"),
    "I7": ("idempotency_key_is_ignored", 6),
    "I8": ("retries_without_backoff", "stockout, then the next zone"),
    "I9": ("no_delete_at_all", "happy"),
    "I10": ("condemned_slices_pile_up", "every machine is bad"),
    "I11": ("secrets_are_told", "happy"),
    "I12": ("unknown_is_gone", "dead, and the cloud is away"),
    "I13": ("suspending_is_not_waited_for", "preempted, and suspended late"),
    "L1": ("circuits_are_ignored", "stockout, then the next zone"),
    "L2": ("ready_is_trusted", "dead, and called ready"),
    "L3": ("a_new_backend_looks_after_nobody", 1),
}


@pytest.fixture(autouse=True)
def nothing_stays_planted() -> Iterator[None]:
    """A bug that outlived its test would be caught in the place of every later one."""
    yield
    tell(SCENARIOS["happy"])


def caught(name: str) -> bool:
    if name in KNOWN:
        if play(KNOWN[name], short=True).violation:
            return True
    elif any(_told(story) for story in SCENARIOS):
        return True
    seeds = ((seed, short) for seed in range(WITHIN) for short in (True, False))
    return any(play(seed, short=short).violation for seed, short in seeds)


def _told(story: str) -> Violation | None:
    try:
        tell(SCENARIOS[story])
    except Violation as violation:
        return violation
    return None


def test_enough_bugs_are_planted() -> None:
    assert len(MUTANTS) >= 40
    assert {*KNOWN} <= {*MUTANTS}, "a bug that is planted no more"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with planted(name):
        assert caught(name), f"{name} went unnoticed in every story and {WITHIN} seeds"


@pytest.mark.parametrize("rule", BREAKS)
def test_an_invariant_can_be_broken(rule: str) -> None:
    bug, where = BREAKS[rule]
    with planted(bug):
        broken = _told(where) if isinstance(where, str) else play(where, short=True).violation
    assert broken is not None, f"{bug} goes unnoticed"
    assert broken.rule == rule, str(broken)
