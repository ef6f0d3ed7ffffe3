"""Bugs planted into budgets, and into what users read of a job."""

from dataclasses import replace
from typing import Any

from tests.support.simulation.patches import (
    BUGS,
    Patch,
    always,
    bug,
    everywhere,
    folded,
    replaced,
    value_bug,
)
from tpujob.domain.decide.attempt_end import ran_since
from tpujob.domain.events import EventKind
from tpujob.domain.money import budget
from tpujob.domain.money.ledger import usd
from tpujob.domain.progress import common_checkpoint, job_progress, steps_kept

BUGS["budgets_are_only_shown"] = value_bug(
    "the budget is used up", "I14", budget, "used_up", always(False)
)
# As if billing ended with the decision.
BUGS["stopping_is_free"] = value_bug("the budget is used up", "I14", budget, "reserve", always(0))
BUGS["any_slice_is_paid_for"] = value_bug(
    "preempted, and little money is left", "I14", budget, "pays_for", always(True)
)
BUGS["stops_long_before_the_limit"] = value_bug(
    "the budget is used up", "I14", budget, "DELETION", 250.0
)


@bug("its numbers are wrong before its first checkpoint", "I17")
def checkpoints_of_wrong_numbers_are_shown() -> Patch:
    """The newest that was saved, whatever a verdict has against it."""

    def shown(real: Any, *args: Any) -> Any:
        has = real(*args)
        return replace(has, checkpoint=has.saved)

    return everywhere(job_progress, shown)


@bug("its numbers are wrong after a checkpoint", "I17")
def checkpoints_before_a_bad_step_are_forgotten() -> Patch:
    return everywhere(common_checkpoint, lambda real, reports, before=None: real(reports))


@bug("a host is cut off before the start is reported", "I17")
def a_program_that_ends_early_has_not_run() -> Patch:
    return everywhere(ran_since, lambda real, job, reports, now: None)


@bug(25, "I17")
def every_step_since_a_known_checkpoint_is_lost() -> Patch:
    """Although the next attempt went on from a later one."""

    def kept(real: Any, job: Any) -> Any:
        return {a.number: real(replace(job, attempts=job.attempts[: a.number])).get(a.number)
                for a in job.attempts if a.ended_at is not None}  # fmt: skip

    return everywhere(steps_kept, kept)


@bug("preempted while running", "I17")
def only_the_newest_slice_is_paid() -> Patch:
    return everywhere(usd, lambda real, slices, now: real(tuple(slices)[-1:], now))


@bug("two slices are paid from one budget", "I14")
def budget_of_each_slice() -> Patch:
    """Forget the costs of earlier slices."""

    return replaced(
        budget,
        "account",
        lambda real, job, *args: real(replace(job, slices=job.slices[-1:]), *args),
    )


@bug("the budget is used up, and is raised in time", "L1")
def more_money_comes_too_late() -> Patch:
    """The new limit is stored, and the job ends all the same."""

    def change(job: Any, happened: Any, after: Any) -> Any:
        raised = happened.kind is EventKind.BUDGET_CHANGED
        return replace(after, next_state=job.next_state) if raised else after

    return folded(change)
