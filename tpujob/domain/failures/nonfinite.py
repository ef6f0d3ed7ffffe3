"""The source of numbers that are not finite: the hardware or the maths. Pure.

A program that follows the contract replays the step and reports the source. For other programs, a failure at the same
step on other hardware proves the maths; progress past that step on other hardware proves the machine.
"""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.model import Attempt, Cause, Job, NonfiniteLoss, Outcome, Verdict
from tpujob.domain.observations import HostReport
from tpujob.domain.progress import good_step

_REPLAYED = ("data", "model", "model or data")


def reported_loss(reports: Sequence[HostReport]) -> NonfiniteLoss | None:
    """Return the loss that has not been finite for the most steps on any host; None: it is finite on all, or unknown.
    A host is named if another one has reported a finite loss of that step or a later one."""
    bad = [(r.progress.nonfinite, r) for r in reports if r.progress.nonfinite]
    if not bad:
        return None
    loss, first = min(
        bad, key=lambda pair: (pair[0].since is None, pair[0].since or 0, pair[1].host)
    )
    differs = any(
        r.progress.loss is not None and (r.progress.step or 0) >= (loss.since or 0) for r in reports
    )
    return replace(loss, host=first.host) if differs else loss


def not_kept(loss: NonfiniteLoss, reached: int, checkpoint: int | None) -> str:
    """Say what an attempt with such a loss leaves, which reached that step: `steps 60 to 99 are not kept, as ...`."""
    steps = "later steps" if loss.since is None else f"steps {loss.since} to {reached}"
    return f"{steps} are not kept, as the loss is {loss.loss}; {newest_good(checkpoint)}"


def newest_good(checkpoint: int | None) -> str:
    if checkpoint is None:
        return "no checkpoint from before that is known"
    return f"the newest good checkpoint is step {checkpoint}"


def is_maths(job: Job, verdict: Verdict | None, physical: Sequence[str]) -> str:
    """Return why the newest attempt, which just ended with this verdict on these machines, proves that the model or the
    data is to blame; empty: it does not."""
    if verdict and verdict.blame in _REPLAYED:
        return f"a replay of the step blames the {verdict.blame}"
    slice = job.attempt.slice if job.attempt else ""
    for earlier in unexplained(job):
        if not elsewhere(earlier, slice, physical):
            continue
        step = earlier.verdict.step if earlier.verdict else None
        if step == (verdict.step if verdict else None):
            at = "" if step is None else f" at step {step}"
            return (
                f"it was not finite{at}, as in attempt {earlier.number} on other hardware: "
                "the model or the data is the cause"
            )
    return ""


def evidence_text(job: Job, verdict: Verdict | None) -> str:
    """Return the known facts about numbers of an unknown source, in one line. The newest attempt has just ended with
    this verdict."""
    verdicts = [*(a.verdict for a in unexplained(job)), verdict]
    steps = list(dict.fromkeys(str(v.step) for v in verdicts if v and v.step is not None))
    at = f" at step{'s' if len(steps) > 1 else ''} {', '.join(steps)}" if steps else ""
    tries = len(verdicts)
    often = "" if tries == 1 else f" in {tries} attempts"
    return (
        f"not finite{at}{often}, and neither a replay nor the same step on other hardware shows whether the "
        "machine or the program is the cause"
    )


def discards(job: Job, slice: str) -> bool:
    """Return whether the program on that slice may still write numbers that are not finite: the newest attempt there
    ended with a verdict."""
    attempts = [a for a in job.attempts if a.slice == slice]
    return bool(attempts and attempts[-1].verdict)


def unexplained(job: Job) -> list[Attempt]:
    """Return the attempts with numbers that were not finite and whose step was not replayed."""
    return [
        a
        for a in job.attempts
        if a.cause is Cause.NONFINITE and not (a.verdict and a.verdict.blame)
    ]


def elsewhere(earlier: Attempt, slice: str, physical: Sequence[str]) -> bool:
    """Return whether the attempt ran on none of these machines. If no machine of both is known, another slice counts as
    other machines."""
    before, now = ({p for p in machines if p} for machines in (earlier.physical, physical))
    if before or now:
        return bool(before and now) and not before & now
    return earlier.slice != slice


def passed(newest: Attempt, verdict: Verdict | None) -> bool:
    """Return whether the newest attempt got past the step. One that was not finite itself and does not report where it
    resumed does not count: it may have begun after the step."""
    if newest.outcome is Outcome.SUCCEEDED:
        return True
    step, progress = verdict.step if verdict else None, newest.progress
    if newest.cause is Cause.NONFINITE and progress.resumed_from is None:
        return False
    made = good_step(progress)
    return step is not None and made is not None and made > step
