"""Decides on the origin of a number that is not finite, from the replays of `replay.py`. Pure.

A step is computed again with the same rows, then with each row on the next device. What is bad on the device that was
bad before, whatever it is given, is the device's fault; what moves with the rows is the data's; what is bad everywhere
is the model's. A host is named only if it must be at fault: else the verdict is open, and the job is tried
on other machines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpujob.contract import Blame, Exit

#: bool [units, rows of a unit]: what was bad. A unit is a device, or a group of `tensor` that shares rows.
Bad = NDArray[np.bool_]
#: The value of a row that was not finite. Each counts only if all before it were finite.
What = Literal["loss", "gradient", "weights' gradient"]

#: Of all rows of a step. If more are bad, on all units, it is no matter of rows.
_MOST_BAD_ROWS = 0.5
#: Rows or devices that a sentence names, at most.
_NAMED = 5


class Place(NamedTuple):
    """A device, as a person finds it."""

    host: int
    device: int  #: numbered from 0 on its host


class Evidence(NamedTuple):
    """The values that were not finite in one computation of the step."""

    bad: Bad
    what: What = "loss"


@dataclass(frozen=True, slots=True)
class Finding:
    """The origin of a number that is not finite."""

    blame: Blame | Literal[""]  #: empty: unknown
    units: tuple[int, ...] = ()  #: at fault, or among them is the one at fault
    rows: tuple[int, ...] = ()  #: of blame=data: places in the batch, as it lies on the devices
    what: What = "loss"
    again: bool = True  #: it was bad in the replay, too


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """The content of `verdict.json`, without the step."""

    blame: Blame | Literal[""]  #: empty: unknown
    host: int | None  #: of a device
    device: str  #: such as `device 2 of host 1`; empty if no device is to blame
    text: str  #: one sentence
    rows: tuple[int, ...] = ()  #: of data: the bad rows, by their numbers in the training set

    @property
    def code(self) -> Exit:
        return Exit.DEVICE if self.blame == "device" else Exit.NONFINITE


class NotFinite(Exception):
    """A step, or the state of a checkpoint, is not finite."""

    def __init__(self, step: int, verdict: StepVerdict) -> None:
        super().__init__(verdict.text)
        self.step = step
        self.verdict = verdict


def evidence_of(forward: NDArray[np.bool_], backward: NDArray[np.bool_], units: int) -> Evidence:
    """Return which rows were bad, from a step's results for each row: [rows], true if finite."""
    if forward.all():
        return Evidence(~backward.reshape(units, -1), "gradient")
    return Evidence(~forward.reshape(units, -1))


def blame_once(first: Evidence) -> Finding:
    """Return the finding for a step that is finite in the replay: only a device can cause that."""
    if first.bad.any():
        return Finding("device", _units(first.bad), what=first.what, again=False)
    every_unit = tuple(range(len(first.bad)))
    return Finding("device", every_unit, what="weights' gradient", again=False)


def blame_again(same: Evidence, moved: Evidence | None) -> Finding:
    """Return the finding for a step that was bad again with the same rows. `moved`: the evidence with the rows of each
    unit on the next unit, or again on the only unit; None if that was finite."""
    first = same.bad
    second = np.zeros_like(first) if moved is None else moved.bad
    if not first.any():
        return Finding("")
    if _everywhere(first) and _everywhere(second):
        return Finding("model", what=same.what)
    followed = np.roll(first, 1, axis=0) & second
    if followed.any() and followed.sum() >= (first & second).sum():
        rows = np.flatnonzero(np.roll(followed, -1, axis=0)).tolist()
        return Finding("data", rows=tuple(rows), what=same.what)
    still = set(_units(first)) & set(_units(second))
    return Finding("device", tuple(sorted(still)) or _units(first), what=same.what)


def blame_state(finite: NDArray[np.bool_], parts: NDArray[np.integer]) -> Finding:
    """Return the finding for a state that is not finite although its steps were. `finite` and `parts` [devices,
    arrays]: whether the part of the array that the device holds is finite, and the number of that part.

    An error of the model is the same on all copies of a part, an error of a device only on its own copy. A part with a
    single copy gives no answer."""
    same = parts[:, None] == parts[None]
    alone = ~finite & (same & finite[None]).any(axis=1)
    if alone.any():
        return Finding("device", _units(alone))
    if (~finite).any(axis=1).all() or (~finite & (same.sum(axis=1) > 1)).any():
        return Finding("model")
    return Finding("", _units(~finite))


def verdict_on_step(
    finding: Finding, places: Sequence[Sequence[Place]], rows: Sequence[int]
) -> StepVerdict:
    """Return the finding in words. `places`: the devices of each unit. `rows`: the numbers in the training set of the
    batch's rows, in their order on the devices."""
    if finding.blame == "data":
        # a small batch is repeated for more devices
        numbers = sorted({rows[place % len(rows)] for place in finding.rows})
        s, pronoun = ("s", "them") if numbers[1:] else ("", "it")
        text = (
            f"the {finding.what} of row{s} {_listed(numbers)} of the training set is not finite on whichever device "
            f"computes {pronoun}: the data made it"
        )
        return StepVerdict("data", None, "", text, tuple(numbers))
    if finding.blame == "model":
        alone = ", or the only device, which there is no other to compare with"
        text = (
            f"the {finding.what} of most rows is not finite on every device, again in a replay: the model made it"
            f"{alone if sum(map(len, places)) == 1 else ''}"
        )
        return StepVerdict("model", None, "", text)
    if finding.blame == "":
        text = "losses and gradients of all rows are finite, and the gradients of the weights or their sum are not"
        return StepVerdict("", None, "", f"{text}: the cause is unknown")
    name, host = named([place for unit in finding.units for place in places[unit]])
    text = (
        f"the {finding.what} is not finite on {name} with any rows, and is finite elsewhere"
        if finding.again
        else f"the {finding.what} was not finite on {name}, and is finite when the step is replayed"
    )
    if host is None:
        return StepVerdict("", None, "", f"{text}: a device made it, and nothing says which")
    return StepVerdict("device", host, name, f"{text}: the device made it")


def verdict_on_state(finding: Finding, places: Sequence[Place]) -> StepVerdict:
    """Return the finding of `blame_state` in words. `places`: the place of each device."""
    problem = "the weights or the optimizer are not finite, although losses and gradients were"
    if finding.blame == "model":
        return StepVerdict("model", None, "", f"{problem}: the update of the model made it")
    name, host = named([places[device] for device in finding.units])
    if finding.blame == "device" and host is not None:
        text = f"{problem}, and the copies elsewhere are finite: {name} made it"
        return StepVerdict("device", host, name, text)
    text = (
        f"{problem}, in parts that only {name} has: the device or the update of the model made it"
    )
    return StepVerdict("", None, "", text)


def named(places: Collection[Place]) -> tuple[str, int | None]:
    """Return a name for these devices, and their host; None if they are on several hosts."""
    hosts = sorted({place.host for place in places})
    if hosts[1:]:
        return f"devices of hosts {_listed(hosts)}", None
    devices = sorted({place.device for place in places})
    return f"device{'s' * (len(devices) > 1)} {_listed(devices)} of host {hosts[0]}", hosts[0]


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    return f"{shown} and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else shown


def _everywhere(bad: Bad) -> bool:
    return bool(bad.any(axis=1).all() and bad.mean() > _MOST_BAD_ROWS)


def _units(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(bad.any(axis=1)).tolist())
