"""More planted bugs: what users read of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.support.simulation.patches import Patch, everywhere
from tpujob.domain.decide.attempt_end import best_progress, ran_since
from tpujob.domain.money import usd_of_job
from tpujob.domain.progress import job_progress, steps_kept


def checkpoints_of_wrong_numbers_are_shown() -> Patch:
    """The newest that was saved, whatever a verdict has against it."""

    def make(real: Any) -> Any:
        def shown(*given: Any) -> Any:
            has = real(*given)
            return replace(has, checkpoint=has.saved)

        return shown

    return everywhere(job_progress, make)


def checkpoints_before_a_bad_step_are_forgotten() -> Patch:
    return everywhere(best_progress, lambda real: lambda reports, bad_step=None: real(reports))


def a_program_that_ends_early_has_not_run() -> Patch:
    return everywhere(ran_since, lambda real: lambda job, reports, now: None)


def every_step_since_a_known_checkpoint_is_lost() -> Patch:
    """Although the next attempt went on from a later one."""

    def make(real: Any) -> Any:
        def kept(job: Any) -> Any:
            return {a.number: real(replace(job, attempts=job.attempts[: a.number])).get(a.number)
                    for a in job.attempts if a.ended_at is not None}  # fmt: skip

        return kept

    return everywhere(steps_kept, make)


def only_the_newest_slice_is_paid() -> Patch:
    return everywhere(
        usd_of_job,
        lambda real: lambda job, now: real(replace(job, slices=job.slices[-1:]), now),
    )


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        checkpoints_of_wrong_numbers_are_shown, checkpoints_before_a_bad_step_are_forgotten,
        a_program_that_ends_early_has_not_run, every_step_since_a_known_checkpoint_is_lost,
        only_the_newest_slice_is_paid,
    )
}  # fmt: skip
