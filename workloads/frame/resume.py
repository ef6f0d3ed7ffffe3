"""Where a run begins: at its newest checkpoint that may be gone on from, or at the beginning.

A checkpoint that is damaged is never gone on from, nor one that is as new as the step that went wrong before
(`TPUJOB_RESUME_BEFORE`): its state may be wrong and finite. Once the start is found, what was
passed over is removed, and what is damaged is set aside, so that the run's own checkpoints are the newest again.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from workloads.checkpoints.saving import Checkpoints
from workloads.checkpoints.stored import Damaged
from workloads.data.rows import Feed
from workloads.frame.config import ConfigError, TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.program import Program


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

    Raises ConfigError, and leaves them where they are, if there are such and all of them are damaged: to begin anew
    would give up all that was trained, and is for a person to decide.
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
            state = checkpoints.state(step, notes)
        except Damaged as error:
            damaged[step] = str(error)
            progress.damaged(step, damaged[step])
            continue
        checkpoints.set_aside(damaged)
        checkpoints.remove_from(step + 1)
        if damaged:
            progress.line(f"the damaged checkpoints are kept in {checkpoints.aside}")
        feed.state = notes.feed
        progress.resumed(step)
        return step, state
    if damaged:
        each = "; ".join(f"step {step}: {what}" for step, what in damaged.items())
        raise ConfigError(
            f"no checkpoint in {checkpoints.folder} can be gone on from ({each}). Put a good one there; "
            "to begin anew, move them away or use another workdir"
        )
    if all_steps:
        checkpoints.remove_from(0)
        progress.line("no older checkpoint is left: from the beginning")
    return 0, program.first_state()
