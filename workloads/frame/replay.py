"""From a step that was not finite to a verdict: it is replayed, then its rows change places.

All hosts do the same, at the same moment, and come to the same verdict. What is decided from the replays is in
`blame.py`; here they are run, and devices and rows get the names by which a person finds them.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from workloads.frame.blame import (
    Evidence,
    Place,
    Reader,
    StepVerdict,
    blame_again,
    blame_once,
    blame_state,
    evidence_of,
    evidence_of_parts,
    readers,
    verdict_on_state,
    verdict_on_step,
)
from workloads.frame.mesh import row_parts
from workloads.frame.program import Program, StepOutcome
from workloads.frame.workload import Batch


class Replay:
    """A step that was not finite, and the model before it, which it leaves as it is while it is not finite."""

    def __init__(
        self,
        program: Program,
        step: Callable[..., Any],
        state: Any,
        batch: Batch,
        spoil: Callable[[Batch], Batch],
    ) -> None:
        """`step` is the compiled one. `spoil` is what an injected fault does to a batch each time it is computed."""
        self.program = program
        self.state = state
        self.batch = batch
        self.units = row_parts(program.mesh)
        self._step = step
        self._spoil = spoil

    def run(self, *, moved: bool = False) -> Evidence | None:
        """Compute the step once more, on request with the rows of each unit on the next unit. None: it was finite,
        and the model is no longer the one before it."""
        batch = self.batch
        if moved:
            count = _rows(batch)
            batch = self.program.rearranged(batch, np.roll(np.arange(count), count // self.units))
        batch = self._spoil(batch)
        self.state, outcome = self._step(self.state, self.program.all_good(), batch)
        if _agreed(outcome.good):
            return None
        found = evidence(self.program, outcome)
        return found if found.bad.any() else self._by_unit(batch)

    def apart(self) -> Replay:
        """The same step with rows of its own on each device, so that each can be told apart."""
        count, devices = _rows(self.batch), self.program.mesh.size
        # a small batch is repeated
        rows = np.arange(-(-count // devices) * devices) % count
        shapes = tuple((name, array.shape[1:], array.dtype) for name, array in self.batch.items())
        program, step = _apart(self.program, len(rows), shapes)
        batch = program.rearranged(self.batch, rows)
        return Replay(program, step, program.taken_over(self.state), batch, self._spoil)

    def _by_unit(self, batch: Batch) -> Evidence:
        """The evidence where the loss and the gradients of each row are finite: the gradients of the weights."""
        rows = _rows(batch) // self.units
        try:
            parts = self.program.by_unit(self.state, batch)
        except (ValueError, NotImplementedError, jax.errors.JaxRuntimeError):
            # a kernel that is bound to its mesh, or no memory: nobody can tell
            return Evidence(
                np.zeros((self.units, rows), np.bool_), "weights' gradient", bounded=True
            )
        return evidence_of_parts(parts, rows)


def evidence(program: Program, outcome: StepOutcome) -> Evidence:
    """What was bad in a step. All hosts learn of all rows, so all must call it."""
    forward, backward = program.everywhere((outcome.forward, outcome.backward))
    return evidence_of(forward, backward, row_parts(program.mesh))


def examine(replay: Replay, first: Evidence, host: int, numbers: Sequence[int]) -> StepVerdict:
    """Replay a step that was bad as `first` says, and say who made it. `host` is our number; `numbers` are those of
    the rows of its batch in the training set, in the order of the feed."""
    program = replay.program
    # the step did not keep the arrays of the optimizer
    of_model = program.sound(replay.state)[:, : program.model_arrays]
    if verdict := examine_state(program, of_model, host):
        return verdict
    hosts = _hosts(host)
    read = _readers(replay.batch, hosts, numbers)
    same = replay.run()
    if same is None:
        return verdict_on_step(blame_once(first), _places(replay.program, hosts), read)
    if replay.program.mesh.shape["tensor"] > 1:
        apart = replay.apart()
        # what the devices make only together does not show when each is on its own
        if (found := apart.run()) is not None:
            replay, same = apart, found
    moved = replay.run(moved=True) if replay.units > 1 else None
    return verdict_on_step(blame_again(same, moved), _places(replay.program, hosts), read)


def examine_state(program: Program, finite: np.ndarray[Any, Any], host: int) -> StepVerdict | None:
    """Who made a state that is not finite although its steps were, from what `Program.sound` says of all or the first
    of its arrays; None if it is finite. `host` is our number."""
    parts = program.parts()[:, : finite.shape[1]]
    finding = None if finite.all() else blame_state(finite, parts)
    if finding is None:
        return None
    places = [place for unit in _places(program, _hosts(host)) for place in unit]
    return verdict_on_state(finding, places)


@lru_cache(maxsize=1)
def _apart(
    program: Program, rows: int, shapes: tuple[tuple[str, tuple[int, ...], Any], ...]
) -> tuple[Program, Callable[..., Any]]:
    """The program with rows of its own on each device, and its step for so many rows of these shapes."""
    apart = program.apart()
    batch = {name: jax.ShapeDtypeStruct((rows, *shape), dtype) for name, shape, dtype in shapes}
    return apart, apart.compile(batch, in_haste=True)


def _rows(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _agreed(good: jax.Array) -> bool:
    """Whether it holds on every device of every host: a broken one may have another value in its copy."""
    own = all(bool(shard.data) for shard in good.addressable_shards)
    return bool(np.all(multihost_utils.process_allgather(np.array(own))))


def _hosts(host: int) -> list[int]:
    """The number of the host of each process. On a TPU the runtime, not we, says which process is which: so the
    hosts tell each other their numbers."""
    return np.ravel(multihost_utils.process_allgather(np.array(host))).tolist()


def _places(program: Program, hosts: list[int]) -> list[list[Place]]:
    """The devices of each unit. A device's own id is no number that a person could look for."""
    number: dict[Any, Place] = {}
    for process, host in enumerate(hosts):
        of_process = [device for device in jax.devices() if device.process_index == process]
        number.update({device: Place(host, i) for i, device in enumerate(of_process)})
    units = program.mesh.devices.reshape(row_parts(program.mesh), -1)
    return [[number[device] for device in unit] for unit in units]


def _readers(batch: Batch, hosts: list[int], numbers: Sequence[int]) -> list[Reader]:
    """Who read each row of a batch."""
    array = next(iter(batch.values()))
    processes = np.empty(len(array), np.int64)
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        processes[index[0]] = device.process_index
    return readers(processes.tolist(), hosts, numbers)
