"""Checkpoints of a training run: saved in the background, committed whole, found again at the start.

A checkpoint has two items: `state` (weights and optimizer, from all hosts) and `data` (the position
in the data and the settings that must not change). Orbax does the work; what is here are the rules.
In a bucket and in a folder alike, a step is committed once its last file, `commit_success.txt`, is there.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import jax
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from orbax.checkpoint.checkpoint_managers import LatestN
from orbax.checkpoint.options import AtomicityMode, AtomicityOptions


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
            preservation_policy=LatestN(keep),
            cleanup_tmp_directories=True,
            atomicity_options=AtomicityOptions(mode=AtomicityMode.COMMIT_FILE),
            create=True,
        )
        if jax.default_backend() == "cpu":
            _save_without_slicing()
        self._manager = _Manager(place, options=options)
        self._saving: int | None = None

    def steps(self) -> list[int]:
        """The committed steps, the newest first."""
        return sorted(self._manager.all_steps(), reverse=True)

    def remove_from(self, step: int) -> None:
        """Remove that step and all after it, as a run that goes on from before would never be newest."""
        for newer in self.steps():
            if newer >= step:
                self._manager.delete(newer)

    def notes(self, step: int) -> dict[str, Any]:
        """What was passed to `save` as notes."""
        wanted = ocp.args.Composite(data=ocp.args.JsonRestore())
        return self._manager.restore(step, args=wanted)["data"]

    def state(self, step: int, like: Any) -> Any:
        """The state, laid out on the devices as `like` is, however it was laid out when it was saved."""
        wanted = ocp.args.Composite(state=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=wanted)["state"]

    def save(self, step: int, state: Any, notes: dict[str, Any]) -> int | None:
        """Begin to save; the state may change once this returns. Waits for a save that is still under way,
        and returns its step, now committed."""
        before = self.wait()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(notes)
        )
        self._manager.save(step, args=items, force=True)
        self._saving = step
        return before

    def committed(self) -> int | None:
        """The step whose save has been committed on all hosts since we last asked. Raises its error."""
        return None if self._manager.is_saving_in_progress() else self.wait()

    def wait(self) -> int | None:
        """Wait for the save that is under way, if any, and return its step, now committed."""
        if self._saving is None:
            return None
        self._manager.wait_until_finished()
        step, self._saving = self._saving, None
        return step


def _save_without_slicing() -> None:
    """Save a copied array from one device, as Orbax itself does on GPU, instead of a slice from each: to
    compile the slicing takes longer (2.7 s at the first save) than to write such an array ever does."""
    handler = ocp.type_handlers.ArrayHandler(use_replica_parallel=False)
    loudness = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # it warns that a handler is replaced, which is the point
    ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
    logging.set_verbosity(loudness)
