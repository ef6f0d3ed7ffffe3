"""Checkpoints of a training run: saved in the background, committed whole, found again at the start.

A checkpoint has two items: `state` (weights and optimizer, from all hosts) and `data` (the position
in the data and the settings that must not change). Orbax does the work; what is here are the rules.
"""

from __future__ import annotations

from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.checkpoint_managers import LatestN


class _Manager(ocp.CheckpointManager):
    def reached_preemption(self, step: int) -> bool:
        """Orbax asks this, for its statistics, about a step that the loop has left behind. JAX takes the
        question for "this host is at that step", and may then agree on a step that is already past."""
        del step
        return False


class Checkpoints:
    """The checkpoints under one folder or `gs://` URL. Every host makes one and calls the same methods."""

    def __init__(self, folder: str, keep: int) -> None:
        """Opens the folder, and removes what a host that was killed in the middle of a save left there."""
        place = epath.Path(folder) if "://" in folder else epath.Path(folder).resolve()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=LatestN(keep), cleanup_tmp_directories=True, create=True
        )
        self._manager = _Manager(place, options=options)
        self._saving: int | None = None

    def latest(self) -> int | None:
        """The newest committed step."""
        return self._manager.latest_step()

    def notes(self, step: int) -> dict[str, Any]:
        """What was passed to `save` as notes."""
        wanted = ocp.args.Composite(data=ocp.args.JsonRestore())
        return self._manager.restore(step, args=wanted).data

    def state(self, step: int, like: Any) -> Any:
        """The state, laid out on the devices as `like` is, however it was laid out when it was saved."""
        wanted = ocp.args.Composite(state=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=wanted).state

    def save(self, step: int, state: Any, notes: dict[str, Any]) -> None:
        """Begin to save; waits for a save before it, but not for this one. The state may then change."""
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(notes)
        )
        self._manager.save(step, args=items, force=True)
        self._saving = step

    def committed(self) -> int | None:
        """The step whose save has just been committed on all hosts; each is told once. Raises its error."""
        if self._saving is None or self._manager.is_saving_in_progress():
            return None
        return self.wait()

    def wait(self) -> int | None:
        """Wait for the save that is under way, and say which step it was."""
        self._manager.wait_until_finished()
        step, self._saving = self._saving, None
        return step
