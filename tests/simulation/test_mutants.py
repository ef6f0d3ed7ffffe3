"""The simulation catches every bug that is planted: otherwise its silence would mean nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.play import play
from tests.simulation.scenarios import SCENARIOS, tell
from tests.simulation.sim import Violation

pytestmark = pytest.mark.timeout(600)

WITHIN = 40  #: seeds, each short and in full
#: where each bug is played first: a story, or a short seed, that shows it soon
SHOWN: dict[str, str | int] = {
    "a_list_serves_for_ever": "two slices are paid from one budget",
    "a_program_that_ends_early_has_not_run": 57,
    "a_new_backend_looks_after_nobody": "dead, under backends that live for half a minute",
    "acts_on_an_old_look": "cancelled between a look and a request",
    "all_beside_a_bad_machine_are_called_bad": "two slices in a row are bad",
    "any_slice_is_paid_for": "preempted, and little money is left",
    "attempt_number_is_reused": "preempted while running",
    "budget_of_each_slice": "two slices are paid from one budget",
    "budgets_are_only_shown": "the budget is used up",
    "checkpoints_before_a_bad_step_are_forgotten": "its numbers are wrong after a checkpoint",
    "checkpoints_of_wrong_numbers_are_shown": "its numbers are wrong before its first checkpoint",
    "checkpoints_do_not_follow": "its checkpoint follows it into another region",
    "circuits_are_ignored": "stockout, then the next zone",
    "cleanup_overwrites_the_outcome": "happy",
    "condemned_slice_is_never_deleted": "every machine is bad",
    "condemned_slices_pile_up": "every machine is bad",
    "create_before_intent": "happy",
    "delete_is_forgotten": "cut off, and its deletion fails unseen",
    "empty_list_is_gone": "missed twice, minutes apart",
    "every_step_since_a_known_checkpoint_is_lost": 25,
    "exit_code_0_is_success": "preempted, and its program ends with 0",
    "gone_at_first_sight": "cut off, and its deletion fails unseen",
    "half_open_lets_everybody_through": "two jobs wait for the same",
    "half_the_hosts_are_started": "happy",
    "hang_by_looks_alone": "preempted while running",
    "hang_by_one_host": "frozen, and thaws",
    "hang_by_the_clock_alone": "frozen, and thaws",
    "hang_while_others_are_prepared": 4,
    "holds_are_for_ever": "cancelled while running",
    "idempotency_key_is_ignored": "replies are lost",
    "impatient_with_silence": "the bucket refuses its hosts for 20 min",
    "launches_count_while_nobody_is_there": "started late, and heard later",
    "launches_take_for_ever": "a host dies",
    "lists_are_acted_upon": "lists show it in part",
    "looks_agree_whenever_they_were": "missed twice, minutes apart",
    "lost_reply_is_a_failure": "replies are lost",
    "maths_is_held_against_machines": "the maths breaks",
    "missing_in_a_list_is_gone": "lists leave it out",
    "more_money_comes_too_late": "the budget is used up, and is raised in time",
    "never_by_name": "deleted by a person, and lists had left it out",
    "no_compare_and_set": "two backends",
    "no_deadline": 0,
    "no_delete_at_all": "happy",
    "no_fencing_and_no_lease": "two backends, and a slow cloud",
    "no_grace_for_the_first_step": "every machine is bad",
    "no_sweep": "orphans",
    "no_watchdog": "hangs",
    "nobody_is_left_behind": "a host ends, and the others wait for it",
    "nobody_waits_for_the_condemned_program": "wrong numbers, and nobody can stop them",
    "old_listings_serve": "happy",
    "old_reports_count": "a host ends first, and its old report is put back",
    "old_watches_count": "nobody looks while its hosts cannot write",
    "one_look_after_a_delete_is_enough": "cut off, and its deletion fails unseen",
    "one_round_makes_a_copy_whole": "data is brought first",
    "only_the_newest_slice_is_paid": "preempted while running",
    "preempted_and_waiting_slices_look_ready": "preempted while it is prepared",
    "ready_is_trusted": "dead, and called ready",
    "reports_are_not_verified": "somebody forges its end",
    "retries_without_backoff": "stockout, then the next zone",
    "secrets_are_told": "happy",
    "silence_is_forgotten": "dead, under backends that live for half a minute",
    "silence_alone_is_death": "nobody looks while its hosts cannot write",
    "slice_number_is_reused": "stockout, then the next zone",
    "slices_do_not_wait_for_data": "data is brought first",
    "start_is_not_safe_to_repeat": 6,
    "stopping_is_free": "the budget is used up",
    "stops_long_before_the_limit": "the budget is used up",
    "success_on_one_host": "a host ends, and the others wait for it",
    "suspects_are_never_taken": "every machine is bad",
    "suspending_is_not_waited_for": "preempted, and suspended late",
    "suspending_is_waited_for_for_ever": "preempted, and never suspended",
    "suspending_is_counted_anew": "preempted, and never suspended",
    "suspicion_counts_twice": "two slices in a row are bad",
    "sweep_believes_an_empty_list_of_jobs": "happy",
    "sweep_takes_foreign_slices": "orphans",
    "sweep_without_grace": 1,
    "what_matters_waits": "happy",
    "what_was_refused_is_never_tried_again": "the bucket refuses its hosts for 20 min",
    "times_of_reports_are_ignored": "dead, and its old reports are put back, under backends that live for half a minute",
    "unknown_is_gone": "dead, and the cloud is away",
    "what_was_overwritten_disturbs_for_ever": "somebody writes over its end",
    "wrong_numbers_are_resumed": "a machine makes wrong numbers",
}

#: for every invariant, a bug that breaks it
BREAKS = {
    "I1": "sweep_takes_foreign_slices",
    "I2": "one_look_after_a_delete_is_enough",
    "I3": "half_the_hosts_are_started",
    "I4": "wrong_numbers_are_resumed",
    "I5": "looks_agree_whenever_they_were",
    "I6": "create_before_intent",
    "I7": "idempotency_key_is_ignored",
    "I8": "retries_without_backoff",
    "I9": "no_delete_at_all",
    "I10": "condemned_slices_pile_up",
    "I11": "secrets_are_told",
    "I12": "unknown_is_gone",
    "I13": "suspending_is_not_waited_for",
    "I14": "budgets_are_only_shown",
    "I15": "slices_do_not_wait_for_data",
    "I16": "what_was_refused_is_never_tried_again",
    "I17": "a_program_that_ends_early_has_not_run",
    "L1": "circuits_are_ignored",
    "L2": "ready_is_trusted",
    "L3": "a_new_backend_looks_after_nobody",
}


@pytest.fixture(autouse=True, scope="module")
def nothing_stays_planted() -> Iterator[None]:
    """A bug that outlived its test would be caught in the place of every later one. Nobody reads what they log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    tell(SCENARIOS["happy"])


def everywhere(name: str) -> Iterator[Violation | None]:
    """What comes of the bug where it is known to show, then wherever else it might."""
    if name in SHOWN:
        yield _played(SHOWN[name])
    for story in SCENARIOS:
        yield _told(story)
    for seed in range(WITHIN):
        for short in (True, False):
            yield play(seed, short=short).violation


def _played(where: str | int) -> Violation | None:
    return _told(where) if isinstance(where, str) else play(where, short=True).violation


def _told(story: str) -> Violation | None:
    try:
        tell(SCENARIOS[story])
    except Violation as violation:
        return violation
    return None


def test_enough_bugs_are_planted() -> None:
    assert len(MUTANTS) >= 40
    assert {*SHOWN, *BREAKS.values()} <= {*MUTANTS}, "a bug that is planted no more"


#: shown only after hours in which a backend has much to do: `make sim` alone plays them
LATE = ("holds_are_for_ever", "suspending_is_counted_anew")
BUGS = [pytest.param(name, marks=pytest.mark.sim) if name in LATE else name for name in MUTANTS]


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str) -> None:
    """By the invariant that it breaks, where it stands for one."""
    with planted(name):
        broken = next(filter(None, everywhere(name)), None)
    assert broken, f"{name} went unnoticed in every story and {WITHIN} seeds"
    assert broken.rule != "X1", f"{name} raises, and shows nothing: {broken}"
    rules = [rule for rule, bug in BREAKS.items() if bug == name]
    assert rules in ([], [broken.rule]), str(broken)
