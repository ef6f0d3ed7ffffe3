"""Reads the checkpoints of a run: whole or not at all, even if files were damaged.

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
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils

from workloads.checkpoints import checksums
from workloads.checkpoints.checksums import Array, Checksums, Found
from workloads.frame.config import ConfigError

#: The last file of a checkpoint that Orbax writes.
_COMMITTED = "commit_success.txt"

#: Text in errors of a storage that cannot be reached or refuses access: no sign of a damaged checkpoint.
_OUT_OF_REACH = (
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "Forbidden",  # gcsfs: an OSError
)
#: Packages whose errors mean the same: gcsfs and its network libraries.
_OF_NETWORK = {"aiohttp", "gcsfs", "google", "requests"}

_Read = TypeVar("_Read")


class Damaged(Exception):
    """A checkpoint cannot be read, or is not what was saved. All hosts raise it alike; the text says what is wrong."""


class Notes(NamedTuple):
    """The contents of a checkpoint besides its state."""

    feed: Any  #: the position in the data
    settings: dict[str, Any]
    arrays: dict[str, Array]


class StoredCheckpoints:
    """The checkpoints under one folder or `gs://` URL, to be read: nothing there is changed. Every host makes one and
    calls the same methods."""

    def __init__(self, folder: str, layout: Any) -> None:
        """`layout`: the state, or the first parts of it, as `jax.ShapeDtypeStruct`s with shardings on one mesh. What it
        leaves out is not read."""
        #: The folder of the checkpoints.
        self.folder = epath.Path(folder) if "://" in folder else epath.Path(folder).resolve()
        self._layout = layout
        self._checksums = Checksums(layout)

    def steps(self) -> list[int]:
        """Return the committed steps, newest first."""
        try:
            folders = [path for path in self.folder.iterdir() if path.name.isdecimal()]
        except FileNotFoundError:
            return []
        committed = [int(path.name) for path in folders if (path / _COMMITTED).exists()]
        return sorted(committed, reverse=True)

    def notes(self, step: int) -> Notes:
        """Return the notes of a step, as passed to `save`. Raises Damaged."""
        return _agreed(partial(_read_notes, self.folder / str(step) / "data" / "metadata"))

    def state(self, step: int, notes: Notes) -> Any:
        """Return the state in `layout`, whatever its layout was when it was saved.

        Raises ConfigError if it is the state of another model, and Damaged if it cannot be read or if a device
        has other bits than were saved.
        """
        _check_same_model(notes.arrays, self._layout, step)
        _ignore_late_answers()
        state = _agreed(partial(_read_state, self.folder / str(step) / "state", self._layout))
        _compare(notes.arrays, self._checksums.read(self._checksums(state)))
        return state


def _read_notes(path: epath.Path) -> Notes:
    """Return the notes in a file. Raises any error if the file was changed."""
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
    """Return the state in a folder. Raises any error if an array cannot be read."""
    into = ocp.checkpoint_utils.construct_restore_args(layout)
    args = ocp.args.PyTreeRestore(layout, restore_args=into, partial_restore=True)
    state = ocp.PyTreeCheckpointHandler().restore(folder, args=args)
    if any(not isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state)):
        raise ValueError("an array is not there")  # Orbax leaves out what its index does not name
    return state


def _agreed(read: Callable[[], _Read]) -> _Read:
    """Return the result of `read` once all hosts have read. Raises Damaged on all hosts if one found damage. If a host
    could not reach the storage, raises its error on that host, and RuntimeError on the others."""
    result: Any = None
    error: Exception | None = None
    try:
        result = read()
    except (
        Exception
    ) as raised:  # Orbax and TensorStore raise many kinds for a file that was changed
        error = raised
    status = 0 if error is None else 2 if _is_out_of_reach(error) else 1
    statuses = multihost_utils.process_allgather(np.array(status))
    if status == 2 and error:
        raise error
    if statuses.max() == 2:
        raise RuntimeError(f"host {statuses.argmax()} could not reach the checkpoints")
    if error:
        raise Damaged(f"it cannot be read: {_first_line(error)}") from error
    if statuses.max():
        raise Damaged(f"it cannot be read on host {statuses.argmax()}")
    return result


def _is_out_of_reach(error: BaseException | None) -> bool:
    """Return whether the error, or one of its causes, means that the storage cannot be reached."""
    if error is None:
        return False
    by_type = isinstance(error, PermissionError | ConnectionError | TimeoutError | MemoryError)
    by_type = by_type or type(error).__module__.partition(".")[0] in _OF_NETWORK
    by_text = any(sign in str(error) for sign in _OUT_OF_REACH)
    return by_type or by_text or _is_out_of_reach(error.__cause__ or error.__context__)


def _first_line(error: Exception) -> str:
    """Return the error as one line, without the details that TensorStore adds."""
    text = str(error).partition(" [tensorstore_spec")[0].partition(" See full TensorStore")[0]
    line = text.strip().partition("\n")[0].rstrip(" :.")
    return f"{type(error).__name__}: {line}"


def _check_same_model(saved: dict[str, Array], layout: Any, step: int) -> None:
    """Raise ConfigError unless the checkpoint has exactly the arrays of this layout, in the parts of the layout."""
    expected = checksums.kinds(layout)
    parts = {_part(path) for path in expected}
    stored = {path: array.kind for path, array in saved.items() if _part(path) in parts}
    for path in sorted(expected.items() ^ stored.items()):
        raise ConfigError(
            f"the checkpoint of step {step} is of another model: {path[0]} is {stored.get(path[0], 'missing')} in it "
            f"and {expected.get(path[0], 'missing')} here; use the settings that it was made with, or another workdir"
        )


def _part(path: str) -> str:
    return path.partition("/")[0]


def _compare(saved: dict[str, Array], checked: Found) -> None:
    """Raise Damaged if a device has other bits than were saved."""
    wrong = sorted(
        path
        for path in checked.arrays
        if saved[path] != checked.arrays[path] or path in checked.unlike
    )
    if wrong:
        raise Damaged(f"{len(wrong)} of its arrays differ from their checksums, first {wrong[0]}")


@cache
def _ignore_late_answers() -> None:
    """Silence errors of reads that end after Orbax has closed its event loop. Orbax closes the loop once an array
    cannot be read; each read still running would print a page of traceback."""
    usual = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        error = unraisable.exc_value
        ended = error and isinstance(error.__cause__ or error.__context__, GeneratorExit)
        if not ended and str(error) != "Event loop is closed":
            usual(unraisable)

    sys.unraisablehook = hook
