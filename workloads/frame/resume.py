"""Restores the newest usable checkpoint of a run, or begins at the first step.

A damaged checkpoint is never resumed from, nor one at or after the step that failed before (`TPUJOB_RESUME_BEFORE`):
its state may be wrong although finite. Then later checkpoints are removed and damaged ones set aside, so that the run's
new checkpoints are the newest.
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
    """Return the step to resume from and its state, and set the feed after it; 0 and a first state if no checkpoint is
    older than step `before` (0: any). Removes later checkpoints.

    Raises ConfigError, and moves nothing, if there are older checkpoints, all damaged: starting again would lose the
    training, so a person must decide.
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
            feed.state = notes.feed
            state = checkpoints.state(step, notes)
        except Damaged as error:
            damaged[step] = str(error)
            progress.damaged(step, damaged[step])
            continue
        checkpoints.set_aside(damaged)
        checkpoints.remove_from(step + 1)
        if damaged:
            progress.line(f"the damaged checkpoints are kept in {checkpoints.aside}")
        progress.resumed(step)
        return step, state
    if damaged:
        problems = "; ".join(f"step {step}: {problem}" for step, problem in damaged.items())
        raise ConfigError(
            f"no checkpoint in {checkpoints.folder} can be gone on from ({problems}). Put a good one there; "
            "to begin anew, move them away or use another workdir"
        )
    if all_steps:
        checkpoints.remove_from(0)
        progress.line("no older checkpoint is left: from the beginning")
    return 0, program.first_state()
