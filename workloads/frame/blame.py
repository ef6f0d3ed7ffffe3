"""What made a non-finite number: pure decisions over which rows were bad on which devices.

A step is computed again with the same rows, then with each row on the next device. What is bad on the
device that was bad before, whatever it is given, is the device's fault; what moves with the rows is
the data's; what is bad everywhere is the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.contract import Blame, Exit

#: [units, rows]: bad rows, by the unit (a device, or some that share a model) they were on
Bad = NDArray[np.bool_]

#: Of all rows of a step. If more are bad, on all units, it is no matter of rows.
_MOST_BAD_ROWS = 0.5


@dataclass(frozen=True, slots=True)
class ReplayFinding:
    """What made it, and the evidence."""

    blame: Blame
    units: tuple[int, ...] = ()  #: of blame=device
    rows: tuple[int, ...] = ()  #: of blame=data: rows of the batch
    again: bool = True  #: it was bad again with the same rows on the same devices


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """What `verdict.json` says, less the step."""

    blame: str  #: device, data or model
    host: int  #: of a device; of data, the host that read it
    device: str  #: such as `device 2 of host 1`; empty if no device is to blame
    text: str  #: one sentence

    @property
    def code(self) -> Exit:
        return Exit.DEVICE if self.blame == "device" else Exit.NONFINITE


def marks(forward: NDArray[Any], backward: NDArray[Any], units: int) -> Bad:
    """What was bad, from the notes of a step, each [rows] and true if finite, over so many units.

    Gradients count only where the loss of every row is finite: a row that is not makes others' gradients bad.
    """
    good = backward if forward.all() else forward
    return ~good.reshape(units, -1)


def transient(first: Bad) -> ReplayFinding:
    """The step is finite when it is computed again: no maths does that."""
    return ReplayFinding("device", units=_units(first), again=False)


def blame_of(same: Bad, moved: Bad) -> ReplayFinding:
    """What made it, from two replays: with the same rows, and with each unit's rows on the next unit."""
    units = len(same)
    if not same.any() or (_everywhere(same) and (units == 1 or _everywhere(moved))):
        return ReplayFinding("model")
    if units == 1:
        return ReplayFinding("data", rows=_rows(same))
    followed = np.roll(same, 1, axis=0) & moved
    stayed = same & moved
    if followed.sum() and followed.sum() >= stayed.sum():
        return ReplayFinding("data", rows=_rows(np.roll(followed, -1, axis=0)))
    still = tuple(unit for unit in _units(same) if unit in _units(moved))
    return ReplayFinding("device", units=still or _units(same))


def _everywhere(bad: Bad) -> bool:
    return bool(bad.any(axis=1).all() and bad.mean() > _MOST_BAD_ROWS)


def _units(bad: Bad) -> tuple[int, ...]:
    return tuple(np.flatnonzero(bad.any(axis=1)).tolist())


def _rows(bad: Bad) -> tuple[int, ...]:
    return tuple(np.flatnonzero(bad).tolist())
