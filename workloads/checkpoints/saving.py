"""The checkpoints of a run, saved in the background, committed whole, and never of a state that is not finite."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from numpy.typing import NDArray
from orbax.checkpoint.checkpoint_managers import LatestN
from orbax.checkpoint.options import (
    AtomicityMode,
    AtomicityOptions,
    FileOptions,
    MultiprocessingOptions,
)

from workloads.checkpoints import checksums
from workloads.checkpoints.checksums import Found
from workloads.checkpoints.stored import StoredCheckpoints


class Checkpoints(StoredCheckpoints):
    """The checkpoints of the run that makes them."""

    def __init__(self, folder: str, keep: int, layout: Any) -> None:
        """Open the folder, and remove incomplete saves of killed hosts."""
        super().__init__(folder, layout)
        #: The folder of checkpoints that were set aside.
        self.aside = self.folder.parent / f"{self.folder.name}-damaged"
        self._keep = keep
        if jax.default_backend() == "cpu":
            _save_without_slicing()
        self._manager = self._open()
        self._saving: int | None = None
        self._found: jax.Array | None = None

    def warm_up(self, state: Any) -> None:
        """Compile the checksums now, so that the first save does not wait for the compiler."""
        self._checksums(state).block_until_ready()

    def steps(self) -> list[int]:
        """Return the committed steps, newest first: the same on all hosts, also during a removal."""
        return sorted(self._manager.all_steps(), reverse=True)

    def remove_from(self, step: int) -> None:
        """Remove that step and all later ones, so that the checkpoints of a run resumed from an earlier step are
        newest."""
        for newer in self.steps():
            if newer >= step:
                self._manager.delete(newer)

    def set_aside(self, damaged: Mapping[int, str]) -> None:
        """Move these steps to the folder `aside`, each with a file that describes its damage."""
        if not damaged:
            return
        self._manager.close()
        if jax.process_index() == 0:
            for step, damage in damaged.items():
                self._move(step, damage)
        self._manager = self._open()  # waits for all hosts before it looks at the folder

    def save(self, step: int, state: Any, feed: Any, settings: dict[str, Any]) -> int | None:
        """Begin to save; the state may change once this returns. Waits for a save that is still under way,
        and returns its step, now committed. A state that is not finite is never committed: ask `sound`."""
        before = self.wait()
        sums: Future[jax.Array] = Future()
        notes = _NotesSave(lambda: _text_of(feed, settings, self._checksums.read(sums.result())))
        items = ocp.args.Composite(state=ocp.args.StandardSave(state), data=notes)
        try:
            self._manager.save(step, args=items, force=True)
        finally:
            # not before: on CPU, computing would take the cores from the threads that Orbax starts and waits for
            self._found = self._checksums(state)
            sums.set_result(self._found)
        self._saving = step
        return before

    def sound(self) -> NDArray[np.bool_] | None:
        """Return which parts of the last saved state are finite, see `Found.sound`: the same on all hosts. Waits for
        the devices. None if this was already returned, or no state was saved."""
        if self._found is None:
            return None
        checked, self._found = self._checksums.read(self._found), None
        return checked.sound

    def committed(self) -> int | None:
        """Return the step whose save was committed on all hosts since the last call, else None. Raises its error."""
        if self._saving is None or self._manager.is_saving_in_progress():
            return None
        return self.wait()

    def wait(self) -> int | None:
        """Wait for the save that is under way, if any, and return its step, now committed."""
        if self._saving is None:
            return None
        step, self._saving = self._saving, None
        try:
            self._manager.wait_until_finished()
        except _NotFiniteError:
            return None
        return step

    def close(self) -> None:
        """Wait for the save that is under way, and end Orbax's threads."""
        self._manager.close()

    def _open(self) -> _Manager:
        self.folder.mkdir(parents=True, exist_ok=True)
        handlers = ocp.handlers.DefaultCheckpointHandlerRegistry()
        handlers.add("data", _NotesSave, _NotesHandler())
        options = ocp.CheckpointManagerOptions(
            preservation_policy=LatestN(self._keep),
            cleanup_tmp_directories=True,
            atomicity_options=AtomicityOptions(mode=AtomicityMode.COMMIT_FILE),
            create=False,
            lightweight_initialize=True,  # else it reads files that may be damaged
            # a look at the folder, for which the training would wait; what was left there is removed at the opening
            file_options=FileOptions(skip_sync_file_validations=True),
            # so hosts meet through JAX's coordinator; else on their devices, behind what those compute
            multiprocessing_options=MultiprocessingOptions(
                active_processes=set(range(jax.process_count()))
            ),
        )
        return _Manager(self.folder, options=options, handler_registry=handlers)

    def _move(self, step: int, damage: str) -> None:
        name, number = str(step), 1
        while (self.aside / f"{name}.txt").exists():
            number += 1
            name = f"{step}-{number}"
        self.aside.mkdir(parents=True, exist_ok=True)
        (self.aside / f"{name}.txt").write_text(f"step {step}: {damage}\n")
        (self.folder / str(step)).rename(self.aside / name)


class _Manager(ocp.CheckpointManager):
    def reached_preemption(self, step: int) -> bool:
        """Return False. Orbax calls this for its statistics, with a step that the loop has passed. JAX would take the
        call for "this host is at that step", and might agree on a step in the past."""
        del step
        return False


class _NotFiniteError(Exception):
    """A save is not committed because its state is not finite."""


class _NotesHandler(ocp.AsyncCheckpointHandler):
    """Writes notes in the background, once the devices have computed the checksums."""

    async def async_save(self, directory: epath.Path, args: _NotesSave) -> list[ocp.future.Future]:
        async def write() -> None:
            text = args.text()
            if jax.process_index() == 0:
                (directory / "metadata").write_text(text)

        return [ocp.future.CommitFutureAwaitingContractedSignals(write(), name="notes")]

    def save(self, directory: epath.Path, args: _NotesSave) -> None:
        raise NotImplementedError

    def restore(self, directory: epath.Path, args: Any = None) -> Any:
        raise NotImplementedError


@ocp.args.register_with_handler(_NotesHandler, for_save=True)
@dataclass
class _NotesSave(ocp.args.CheckpointArgs):
    text: Callable[[], str]  #: waits for the devices


def _text_of(feed: Any, settings: dict[str, Any], checked: Found) -> str:
    if not checked.sound.all():
        raise _NotFiniteError("the state is not finite, and is not saved")
    notes = {"feed": feed, "settings": settings, "arrays": checked.arrays}
    return json.dumps({"notes": notes, "sha256": checksums.of_text(notes)})


def _save_without_slicing() -> None:
    """Save a copied array from one device, as Orbax itself does on GPU, instead of a slice from each: to
    compile the slicing takes longer (2.7 s at the first save) than to write such an array ever does."""
    handler = ocp.type_handlers.ArrayHandler(use_replica_parallel=False)
    loudness = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # it warns that a handler is replaced, which is the point
    ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
    logging.set_verbosity(loudness)
