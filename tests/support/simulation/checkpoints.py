"""I4: no checkpoint is lost, no run resumes from one with wrong numbers, and the record agrees with the ledger."""

import math
from collections.abc import Sequence

from tests.support.simulation.programs import Checkpoint, Run
from tests.support.simulation.sim import Broken
from tpujob.domain.model import Attempt, Cause, Job, Verdict


class Checkpoints:
    def __init__(self, jobs: dict[str, Job], broken: Broken) -> None:
        self.jobs, self.broken = jobs, broken

    def rolled_back(self, job_id: str, before: int, saved: Sequence[Checkpoint]) -> None:
        """Check an attempt that must stay before a step: the end of an attempt says that this step was wrong, and the
        record has no later checkpoint."""
        job = self.jobs[job_id]
        blamed = [a.number for a, verdict in judged(job) if verdict.step == before]
        if not blamed:
            self.broken("I4", job_id, f"sent back before step {before}, which nothing accuses")
        given_up = {c.attempt for c in saved if c.step >= before and c.good}
        later = [a for a in job.attempts if a.number in given_up and a.number > blamed[-1]]
        for attempt in later:
            if (attempt.progress.checkpoint or 0) >= before:
                text = (
                    f"sent back before step {before} again: attempt {attempt.number} had passed it"
                )
                self.broken("I4", job_id, text)

    def resumed(self, run: Run, base: Checkpoint, saved: Sequence[Checkpoint]) -> None:
        """Check that a run resumes from the newest allowed checkpoint, and from none with known wrong numbers."""
        job = self.jobs.get(run.job)
        if job is None:
            return
        if not base.good and run.work.listens:
            for attempt, verdict in judged(job):
                bad = math.inf if verdict.step is None else verdict.step
                if base.attempt == attempt.number and bad <= base.step:
                    text = f"goes on from step {base.step}; attempt {attempt.number} broke at {bad}"
                    self.broken("I4", run.job, f"attempt {run.attempt} {text}")
        newest = max((c.step for c in saved if c.good), default=0)
        if base.good and base.step < newest:
            text = f"resumes at step {base.step}, and {newest} was committed"
            self.broken("I4", run.job, f"attempt {run.attempt} {text}")

    def recorded(self, before: Job, job: Job, saved: Sequence[Checkpoint]) -> None:
        """Check that the record's checkpoint moves forward within an attempt, and is committed."""
        newest = job.attempt
        if newest is None or newest.progress.checkpoint is None:
            return
        pointer = newest.progress.checkpoint
        old = before.attempt
        before_bad = newest.verdict is not None and pointer < (newest.verdict.step or 0)
        back = old is not None and (old.progress.checkpoint or 0) > pointer
        if old and old.number == newest.number and back and not before_bad:
            text = f"its checkpoint went back from {old.progress.checkpoint} to {pointer}"
            self.broken("I4", job.id, f"attempt {newest.number}: {text}")
        if pointer > max((c.step for c in saved), default=0):
            self.broken("I4", job.id, f"says that step {pointer} was saved, which never was")


def judged(job: Job) -> list[tuple[Attempt, Verdict]]:
    """Return the attempts that ended for wrong numbers, each with its verdict."""
    wrong = (Cause.NONFINITE, Cause.BAD_HOST)
    return [(a, a.verdict) for a in job.attempts if a.verdict and a.cause in wrong]
