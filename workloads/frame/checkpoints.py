"""Checkpoints of a training run: saved in the background, committed whole, checked when they are read.

A checkpoint has two items: `state` (from all hosts) and `data`, the notes:
the position in the data, the settings that must not change, and type, shape and bit checksum of each array of the
state. Orbax does the work; what is here are the rules. In a bucket and in a folder alike, a step is committed once
its last file, `commit_success.txt`, is there.

Reading is done by Orbax's handlers and not by its manager: they wait for no other host, so that one which finds
damage alone can tell the others.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from jax.experimental import multihost_utils
from numpy.typing import NDArray
from orbax.checkpoint.checkpoint_managers import LatestN
from orbax.checkpoint.options import (
    AtomicityMode,
    AtomicityOptions,
    FileOptions,
    MultiprocessingOptions,
)

from workloads.frame import checksums
from workloads.frame.checksums import Array, Checksums, Found
from workloads.frame.config import ConfigError

#: The last file of a checkpoint that Orbax writes.
_COMMITTED = "commit_success.txt"

#: What the errors of a storage say that is out of reach or refuses us: no sign that a checkpoint is damaged.
_OUT_OF_REACH = (
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
)

_Read = TypeVar("_Read")


class Damaged(Exception):
    """A checkpoint cannot be read, or is not what was saved. All hosts raise it alike; the text says what is wrong."""


class Notes(NamedTuple):
    """What a checkpoint says besides its state."""

    feed: Any  #: the position in the data
    settings: dict[str, Any]
    arrays: dict[str, Array]


class StoredCheckpoints:
    """The checkpoints under one folder or `gs://` URL, to be read: nothing there is changed. Every host makes one and
    calls the same methods."""

    def __init__(self, folder: str, layout: Any) -> None:
        """`layout`: the state, or the first parts of it, as `jax.ShapeDtypeStruct`s with shardings on one mesh. What it
        leaves out is not read."""
        #: Where they are.
        self.folder = epath.Path(folder) if "://" in folder else epath.Path(folder).resolve()
        self._layout = layout
        self._checksums = Checksums(layout)

    def steps(self) -> list[int]:
        """The committed steps, the newest first."""
        try:
            found = [path for path in self.folder.iterdir() if path.name.isdecimal()]
        except FileNotFoundError:
            return []
        committed = [int(path.name) for path in found if (path / _COMMITTED).exists()]
        return sorted(committed, reverse=True)

    def notes(self, step: int) -> Notes:
        """What was passed to `save`. Raises Damaged."""
        return _agreed(partial(_read_notes, self.folder / str(step) / "data" / "metadata"))

    def state(self, step: int, notes: Notes) -> Any:
        """The state, laid out as `layout` says, however it was laid out when it was saved.

        Raises ConfigError if it is the state of another model, and Damaged if it cannot be read or if a device
        has other bits than were saved.
        """
        _check_same_model(notes.arrays, self._layout, step)
        _ignore_late_answers()
        state = _agreed(partial(_read_state, self.folder / str(step) / "state", self._layout))
        _compare(notes.arrays, self._checksums.read(self._checksums(state)))
        return state


class Checkpoints(StoredCheckpoints):
    """The checkpoints of the run that makes them."""

    def __init__(self, folder: str, keep: int, layout: Any) -> None:
        """Opens the folder, and removes what a host that was killed in the middle of a save left there."""
        super().__init__(folder, layout)
        #: Where those are that were set aside.
        self.aside = self.folder.parent / f"{self.folder.name}-damaged"
        self._keep = keep
        if jax.default_backend() == "cpu":
            _save_without_slicing()
        self._manager = self._open()
        self._saving: int | None = None
        self._found: jax.Array | None = None

    def warm_up(self, state: Any) -> None:
        """Compile now what the first save of such a state would wait for."""
        self._checksums(state).block_until_ready()

    def steps(self) -> list[int]:
        """The same on all hosts, also while one of them removes some."""
        return sorted(self._manager.all_steps(), reverse=True)

    def remove_from(self, step: int) -> None:
        """Remove that step and all after it, as a run that goes on from before would never be newest."""
        for newer in self.steps():
            if newer >= step:
                self._manager.delete(newer)

    def set_aside(self, damaged: Mapping[int, str]) -> None:
        """Move these steps out of the way, each with a file that says what is wrong with it."""
        if not damaged:
            return
        self._manager.close()
        if jax.process_index() == 0:
            for step, what in damaged.items():
                self._move(step, what)
        self._manager = self._open()  # waits for all hosts before it looks at the folder

    def save(self, step: int, state: Any, feed: Any, settings: dict[str, Any]) -> int | None:
        """Begin to save; the state may change once this returns. Waits for a save that is still under way,
        and returns its step, now committed. A state that is not finite is never committed: ask `sound`."""
        before = self.wait()
        sums: Future[jax.Array] = Future()
        notes = _Unwritten(feed, settings, lambda: self._checksums.read(sums.result()))
        items = ocp.args.Composite(state=ocp.args.StandardSave(state), data=_NotesSave(notes))
        try:
            self._manager.save(step, args=items, force=True)
        finally:
            # not before: on CPU, computing would take the cores from the threads that Orbax starts and waits for
            self._found = self._checksums(state)
            sums.set_result(self._found)
        self._saving = step
        return before

    def sound(self) -> NDArray[np.bool_] | None:
        """Which parts of the state that was last given to `save` are finite, see `Found.sound`. Waits for the devices;
        all hosts get the same. None if there is nothing that was not asked about."""
        if self._found is None:
            return None
        found, self._found = self._checksums.read(self._found), None
        return found.sound

    def committed(self) -> int | None:
        """The step whose save has been committed on all hosts since we last asked. Raises its error."""
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

    def _move(self, step: int, what: str) -> None:
        name, number = str(step), 1
        while (self.aside / f"{name}.txt").exists():
            number += 1
            name = f"{step}-{number}"
        self.aside.mkdir(parents=True, exist_ok=True)
        (self.aside / f"{name}.txt").write_text(f"step {step}: {what}\n")
        (self.folder / str(step)).rename(self.aside / name)


class _Manager(ocp.CheckpointManager):
    def reached_preemption(self, step: int) -> bool:
        """Orbax asks this, for its statistics, about a step that the loop has left behind. JAX takes the
        question for "this host is at that step", and may then agree on a step that is already past."""
        del step
        return False


class _NotFiniteError(Exception):
    """A save is not committed because its state is not finite."""


class _Unwritten(NamedTuple):
    feed: Any
    settings: dict[str, Any]
    found: Callable[[], Found]  #: waits for the devices

    def text(self) -> str:
        found = self.found()
        if not found.sound.all():
            raise _NotFiniteError("the state is not finite, and is not saved")
        notes = {"feed": self.feed, "settings": self.settings, "arrays": found.arrays}
        return json.dumps({"notes": notes, "sha256": checksums.of_text(notes)})


class _NotesHandler(ocp.AsyncCheckpointHandler):
    """Writes notes in the background, once the devices have computed the checksums."""

    async def async_save(self, directory: epath.Path, args: _NotesSave) -> list[ocp.future.Future]:
        async def write() -> None:
            text = args.notes.text()
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
    notes: _Unwritten


def _read_notes(path: epath.Path) -> Notes:
    """Raises what is raised where the file is not what was written."""
    written = json.loads(path.read_text())
    notes = written["notes"]
    if written.keys() != {"notes", "sha256"} or written["sha256"] != checksums.of_text(notes):
        raise ValueError("the notes differ from their checksum")
    arrays = {
        path: Array(kind, (first, second))
        for path, (kind, (first, second)) in notes["arrays"].items()
    }
    return Notes(notes["feed"], notes["settings"], arrays)


def _read_state(folder: epath.Path, layout: Any) -> Any:
    """Raises what is raised where an array cannot be read."""
    into = ocp.checkpoint_utils.construct_restore_args(layout)
    args = ocp.args.PyTreeRestore(layout, restore_args=into, partial_restore=True)
    state = ocp.PyTreeCheckpointHandler().restore(folder, args=args)
    if any(not isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state)):
        raise ValueError("an array is not there")  # Orbax leaves out what its index does not name
    return state


def _agreed(read: Callable[[], _Read]) -> _Read:
    """What `read` returns, once all hosts have read it. Raises Damaged on all of them if one found damage; where
    one could not reach the storage, its own error there, and RuntimeError elsewhere."""
    result: Any = None
    error: Exception | None = None
    try:
        result = read()
    except (
        Exception
    ) as raised:  # Orbax and TensorStore raise many kinds for a file that was changed
        error = raised
    mine = 0 if error is None else 2 if _is_out_of_reach(error) else 1
    each = multihost_utils.process_allgather(np.array(mine))
    if mine == 2 and error:
        raise error
    if each.max() == 2:
        raise RuntimeError(f"host {each.argmax()} could not reach the checkpoints")
    if error:
        raise Damaged(f"it cannot be read: {_first_line(error)}") from error
    if each.max():
        raise Damaged(f"it cannot be read on host {each.argmax()}")
    return result


def _is_out_of_reach(error: BaseException | None) -> bool:
    """Also if that is only the cause of the error."""
    if error is None:
        return False
    known = isinstance(error, PermissionError | ConnectionError | TimeoutError | MemoryError)
    told = any(sign in str(error) for sign in _OUT_OF_REACH)
    return known or told or _is_out_of_reach(error.__cause__ or error.__context__)


def _first_line(error: Exception) -> str:
    """The error without the pages that TensorStore adds."""
    text = str(error).partition(" [tensorstore_spec")[0].partition(" See full TensorStore")[0]
    line = text.strip().partition("\n")[0].rstrip(" :.")
    return f"{type(error).__name__}: {line}"


def _check_same_model(saved: dict[str, Array], layout: Any, step: int) -> None:
    """Raises ConfigError if the checkpoint has not just the arrays of this layout, in the parts that this has."""
    here = checksums.kinds(layout)
    parts = {_part(path) for path in here}
    there = {path: array.kind for path, array in saved.items() if _part(path) in parts}
    for path in sorted(here.items() ^ there.items()):
        raise ConfigError(
            f"the checkpoint of step {step} is of another model: {path[0]} is {there.get(path[0], 'missing')} in it "
            f"and {here.get(path[0], 'missing')} here; use the settings that it was made with, or another workdir"
        )


def _part(path: str) -> str:
    return path.partition("/")[0]


def _compare(saved: dict[str, Array], found: Found) -> None:
    """Raises Damaged if a device has other bits than were saved."""
    wrong = sorted(
        path for path in found.arrays if saved[path] != found.arrays[path] or path in found.unlike
    )
    if wrong:
        raise Damaged(f"{len(wrong)} of its arrays differ from their checksums, first {wrong[0]}")


@cache
def _ignore_late_answers() -> None:
    """Once an array cannot be read Orbax closes its event loop, while others are still being read. Each of them then
    fails on that, with a page of traceback on stderr."""
    usual = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        error = unraisable.exc_value
        ended = error and isinstance(error.__cause__ or error.__context__, GeneratorExit)
        if not ended and str(error) != "Event loop is closed":
            usual(unraisable)

    sys.unraisablehook = hook


def _save_without_slicing() -> None:
    """Save a copied array from one device, as Orbax itself does on GPU, instead of a slice from each: to
    compile the slicing takes longer (2.7 s at the first save) than to write such an array ever does."""
    handler = ocp.type_handlers.ArrayHandler(use_replica_parallel=False)
    loudness = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # it warns that a handler is replaced, which is the point
    ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
    logging.set_verbosity(loudness)
