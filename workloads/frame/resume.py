"""Where a run begins: at its newest checkpoint that may be gone on from, or at the beginning.

A checkpoint that is damaged or whose state is not finite is never gone on from, nor one that is as new as the step
that went wrong before (`TPUJOB_RESUME_BEFORE`): its state may be wrong and finite. Once the start is found, what was
passed over is removed, and what is damaged is set aside, so that the run's own checkpoints are the newest again.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from workloads.data.rows import Feed
from workloads.frame.checkpoints import Checkpoints, Damaged
from workloads.frame.config import ConfigError, TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.program import Program
from workloads.verdicts.blame import NotFinite, StepVerdict


class NoneLeft(ConfigError):
    """There are checkpoints, and none may be gone on from, as some are damaged. Beginning anew is for a person to
    decide: it would give up all that was trained."""

    def __init__(self, folder: str, tried: list[int], damaged: dict[int, str]) -> None:
        each = (f"step {step}: {damaged.get(step, 'its numbers are not finite')}" for step in tried)
        super().__init__(
            f"no checkpoint in {folder} can be gone on from ({'; '.join(each)}). Put a good one there; "
            "to begin anew, move them away or use another workdir"
        )


def restore(
    checkpoints: Checkpoints,
    program: Program,
    feed: Feed,
    config: TrainConfig,
    progress: ProgressLog,
    before: int = 0,
) -> tuple[int, Any]:
    """The step to go on from and its state, with the feed set behind it; 0 and a first state if no
    checkpoint is older than step `before` (0: any). Later checkpoints are removed by then.

    Raises NotFinite, and removes none, if there are such and none of them is finite; NoneLeft, and leaves them
    where they are, if some of them are damaged.
    """
    all_steps = checkpoints.steps()
    tried = [step for step in all_steps if not before or step < before]
    if len(tried) < len(all_steps):
        late = ", ".join(str(step) for step in all_steps if step not in tried)
        progress.line(f"not going on from the checkpoint of step {late}: not before step {before}")
    damaged: dict[int, str] = {}
    for step in tried:
        try:
            notes = checkpoints.notes(step)
            config.check_same(notes.settings, step)
            state, sound = checkpoints.state(step, notes)
        except Damaged as error:
            damaged[step] = str(error)
            progress.damaged(step, damaged[step])
            continue
        if sound.all():
            checkpoints.set_aside(damaged)
            checkpoints.remove_from(step + 1)
            if damaged:
                progress.line(f"the damaged checkpoints are kept in {checkpoints.aside}")
            if notes.arrays is None:
                progress.line(
                    f"the checkpoint of step {step} has no checksums: it was not verified"
                )
            feed.state = notes.feed
            progress.resumed(step)
            return step, state
        progress.line(
            f"not going on from the checkpoint of step {step}: its numbers are not finite"
        )
    if damaged:
        raise NoneLeft(checkpoints.folder, tried, damaged)
    if tried:
        text = f"no checkpoint is left: the numbers of step {tried[-1]}, the oldest, are not finite"
        raise NotFinite(tried[-1], StepVerdict("model", None, "", text))
    if all_steps:
        checkpoints.remove_from(0)
        progress.line("no older checkpoint is left: from the beginning")
    return 0, program.first_state()
