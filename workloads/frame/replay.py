"""From a step that was not finite to a verdict: it is replayed, then its rows change places.

All hosts do the same, at the same moment, and come to the same verdict. What is decided from the
replays is in `blame.py`; here they are run, and the culprit is given a name that a person can look for.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh
from numpy.typing import NDArray

from workloads.frame.blame import Bad, ReplayFinding, StepVerdict, blame_of, marks, transient
from workloads.frame.mesh import AXES, row_parts
from workloads.frame.program import Program, StepOutcome
from workloads.frame.workload import Batch

#: Rows that a sentence names, at most.
_NAMED_ROWS = 5


class Bench:
    """A compiled step, and a state that it may be tried on again and again while it is not finite."""

    def __init__(
        self, program: Program, step: Callable[..., Any], state: Any, batch: Batch
    ) -> None:
        self.program = program
        self._step = step
        self._state = state
        self._batch = batch

    def replay(self, spoil: Callable[[Batch], Batch], *, moved: bool = False) -> Bad | None:
        """Compute the step once more, on request with each unit's rows on the next unit. Returns what was
        bad; None if the step was finite, after which the state is no longer the one before it."""
        batch = self._moved() if moved else self._batch
        self._state, outcome = self._step(self._state, self.program.all_good(), spoil(batch))
        return None if bool(outcome.good) else bad_in(self.program, outcome)

    def finer(self) -> Bench:
        """The same step with rows of its own on each device, so that each can be told apart. The parameters are
        split over all devices of a slice, so no device holds more of them than before."""
        devices = self.program.mesh.devices
        slices = devices.shape[0]
        apart = Mesh(devices.reshape(slices, 1, -1, 1), AXES, axis_types=(AxisType.Auto,) * 4)
        program = self.program.on(apart)
        count = len(next(iter(self._batch.values())))
        which = np.arange(devices.size * max(1, count // devices.size)) % count
        batch = program.laid_out(self._batch, lambda array: jnp.take(array, which, axis=0))
        state = program.taken_over(self._state, program.shardings)
        return Bench(program, program.compile(batch, in_haste=True), state, batch)

    def _moved(self) -> Batch:
        units = row_parts(self.program.mesh)
        return self.program.laid_out(
            self._batch, lambda array: jnp.roll(array, array.shape[0] // units, axis=0)
        )


def bad_in(program: Program, outcome: StepOutcome) -> Bad:
    """What was bad in a step, by the units of the mesh. All hosts learn of all, so all must call it."""
    forward, backward = program.everywhere((outcome.forward, outcome.backward))
    return marks(forward, backward, row_parts(program.mesh))


def examine(
    bench: Bench,
    first: Bad,
    spoil: Callable[[Batch], Batch],
    host: int,
    *,
    apart: bool,
) -> StepVerdict:
    """Replay a step that was bad in the places `first`, and say who made it.

    `spoil` is what an injected fault does to a batch each time it is computed; `host` is our number. With `apart`,
    devices that share a copy of the model are told apart, for which each needs room for a whole copy.
    """
    same = bench.replay(spoil)
    if same is None:
        return _verdict(transient(first), bench.program, host)
    if apart and bench.program.mesh.shape["tensor"] > 1:
        finer = bench.finer()
        # what the devices make only together does not show when each is on its own
        if (found := finer.replay(spoil)) is not None:
            bench, same = finer, found
    moved = bench.replay(spoil, moved=True) if len(same) > 1 else None
    finding = blame_of(same, np.zeros_like(same) if moved is None else moved)
    return _verdict(finding, bench.program, host)


def blame_state(sound: NDArray[np.bool_], program: Program, host: int) -> StepVerdict | None:
    """Who made a state that is not finite although its steps were: `sound` says it of each device. None
    if all is well. An error of the maths is the same on all copies, one of a device on its own alone."""
    if sound.all():
        return None
    what = "the weights or the optimizer are not finite, although losses and gradients were"
    if not sound.all(axis=1).any():
        return StepVerdict("model", 0, "", f"{what}: the update of the model made it")
    whose, name = _named([program.mesh.devices.flat[int(np.argmin(sound))]], host)
    return StepVerdict("device", whose, name, f"{what}, and are finite elsewhere: {name} made it")


def _verdict(finding: ReplayFinding, program: Program, host: int) -> StepVerdict:
    devices = program.mesh.devices.reshape(-1, program.mesh.shape["tensor"])
    if finding.blame == "model":
        text = "most rows are not finite on every device, again in a replay: the model made it"
        if devices.size == 1:
            text += ", or the only device, which there is no other to compare with"
        return StepVerdict("model", 0, "", text)
    if finding.blame == "data":
        batch = program.config.batch
        bad = sorted(
            {row % batch for row in finding.rows}
        )  # a small one is repeated for more devices
        shown = ", ".join(map(str, bad[:_NAMED_ROWS])) + ", ..." * (len(bad) > _NAMED_ROWS)
        which, them = ("rows", "them") if bad[1:] else ("row", "it")
        are = "are" if bad[1:] else "is"
        text = f"{which} {shown} of the batch {are} not finite on whichever device computes {them}"
        whose, _ = _named([devices[bad[0] * len(devices) // batch, 0]], host)
        return StepVerdict("data", whose, "", f"{text}: the data made it")
    units = [list(devices[unit]) for unit in finding.units] or [list(devices.flat)]
    whose, name = _named(units[0], host)
    others = "" if len(units) == 1 else f" (and {len(units) - 1} more)"
    text = (
        f"rows are not finite on {name}{others}, whichever they are, and are finite elsewhere"
        if finding.again
        else f"rows were not finite on {name}{others} and are when they are replayed there"
    )
    return StepVerdict("device", whose, name, f"{text}: the device made it")


def _named(devices: Sequence[Any], host: int) -> tuple[int, str]:
    """The host of these devices, which share it, and their name. `host` is our own number.

    A device's own id is no number that a person could look for, and on a TPU the runtime, not we, says
    which process is which: so the hosts tell each other their numbers.
    """
    numbers = np.ravel(multihost_utils.process_allgather(np.array([host])))
    process = devices[0].process_index
    local = [device for device in jax.devices() if device.process_index == process]
    places = sorted(local.index(device) for device in devices)
    shown = f"device {places[0]}" if len(places) == 1 else f"devices {places[0]} to {places[-1]}"
    number = int(numbers[process])
    return number, f"{shown} of host {number}"
