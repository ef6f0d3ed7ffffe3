"""Replays a step that was not finite, then with its rows on other devices, and reaches a verdict.

All hosts do the same, at the same moment, and come to the same verdict. What is decided from the replays is in
`blame.py`; here they are run, and devices and rows get the names by which a person finds them.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from workloads.checkpoints.checksums import Checksums
from workloads.frame.config import least_batch
from workloads.frame.mesh import AXES, row_parts
from workloads.frame.program import MODEL, Program, StepOutcome
from workloads.frame.workload import Batch
from workloads.verdicts.blame import (
    Evidence,
    Place,
    StepVerdict,
    blame_again,
    blame_once,
    blame_state,
    evidence_of,
    verdict_on_state,
    verdict_on_step,
)


@dataclass
class Replay:
    """A step that was not finite, and the model before it, which it leaves as it is while it is not finite."""

    program: Program
    step: Callable[..., Any]  #: the compiled one
    state: Any
    batch: Batch
    #: What an injected fault does to a batch each time it is computed.
    spoil: Callable[[Batch], Batch]

    def run(self, *, moved: bool = False) -> Evidence | None:
        """Compute the step once more, on request with the rows of each unit on the next unit. None: it was finite,
        and the model is no longer the one before it."""
        batch = self.batch
        if moved:
            rows = np.roll(np.arange(self.rows), self.rows // row_parts(self.program.mesh))
            batch = _taken(batch, rows, self.program.by_row)
        with jax.set_mesh(self.program.mesh):
            good = self.program.all_good()
            self.state, outcome = self.step(self.state, good, self.spoil(batch))
        return None if _agreed(outcome.good) else evidence(self.program, outcome)

    @property
    def rows(self) -> int:
        return len(next(iter(self.batch.values())))

    def apart(self) -> Replay:
        """Return the same step with separate rows on each device, so that devices can be distinguished."""
        program, step = _apart(self.program)
        # a small batch is repeated
        size = least_batch(self.rows, program.mesh.size * program.config.accumulate)
        batch = _taken(self.batch, np.arange(size) % self.rows, program.by_row)
        state = jax.device_put(self.state, program.shardings)
        return Replay(program, step, state, batch, self.spoil)


def evidence(program: Program, outcome: StepOutcome) -> Evidence:
    """Return the evidence of a step. All hosts get that of all rows, so all must call it."""
    by_row = multihost_utils.process_allgather((outcome.forward, outcome.backward), tiled=True)
    return evidence_of(*by_row, row_parts(program.mesh))


def examine(replay: Replay, first: Evidence, host: int, numbers: Sequence[int]) -> StepVerdict:
    """Replay a step with the evidence `first` and return the verdict. `host`: this host's number. `numbers`: the
    numbers in the training set of this host's rows."""
    # the step did not keep the arrays of the optimizer
    layout = replay.program.layout[MODEL]
    checksums = Checksums(layout)
    sound = checksums.read(checksums(replay.state[MODEL])).sound
    if verdict := examine_state(layout, sound, host):
        return verdict
    # the numbers lie where the rows lie
    named = replay.program.batch({"numbers": np.array(numbers, np.int32)})
    rows = multihost_utils.process_allgather(named, tiled=True)["numbers"].tolist()
    same = replay.run()
    if same is None:
        return verdict_on_step(blame_once(first), _units(replay.program.mesh, host), rows)
    if replay.program.mesh.shape["tensor"] > 1:
        apart = replay.apart()
        # what the devices make only together does not show when each is on its own
        if (separate := apart.run()) is not None:
            replay, same = apart, separate
    finding = blame_again(same, replay.run(moved=True))
    return verdict_on_step(finding, _units(replay.program.mesh, host), rows)


def examine_state(layout: Any, sound: NDArray[np.bool_], host: int) -> StepVerdict | None:
    """Return the verdict on a state that is not finite although its steps were, from its checksums (`Found.sound`);
    None if it is finite. `host`: this host's number."""
    if sound.all():
        return None
    arrays = [x for x in jax.tree.leaves(layout) if jnp.issubdtype(x.dtype, jnp.inexact)]
    parts = np.stack([_parts(array.sharding, array.shape) for array in arrays], axis=1)
    return verdict_on_state(blame_state(sound, parts), _places(arrays[0].sharding.mesh, host))


@cache
def _apart(program: Program) -> tuple[Program, Callable[..., Any]]:
    """The program with rows of its own on each device, and its step. The parameters are split over all devices of a
    slice, so that none holds more of them than before."""
    slices = program.mesh.devices.reshape(program.mesh.shape["dcn"], 1, -1, 1)
    apart = Program(program.workload, Mesh(slices, AXES, axis_types=program.mesh.axis_types))
    return apart, apart.step(apart.in_haste)


@partial(jax.jit, static_argnames="sharding")
def _taken(batch: Batch, rows: NDArray[np.integer], sharding: NamedSharding) -> Batch:
    """Return these rows of a batch, which may be on another mesh of the same devices."""
    taken = {name: jnp.take(array, rows, axis=0) for name, array in batch.items()}
    return jax.lax.with_sharding_constraint(taken, sharding)


def _agreed(good: jax.Array) -> bool:
    """Return whether `good` holds on every device of every host: a broken device may hold another value."""
    own = all(bool(shard.data) for shard in good.addressable_shards)
    return bool(np.all(multihost_utils.process_allgather(np.array(own))))


def _parts(sharding: NamedSharding, shape: tuple[int, ...]) -> list[int]:
    """Return, for each device of the mesh, the number of the array's part that it holds."""
    held = sharding.devices_indices_map(shape)
    starts = [tuple(part.start for part in held[device]) for device in sharding.mesh.devices.flat]
    return [starts.index(start) for start in starts]


def _units(mesh: Mesh, host: int) -> list[list[Place]]:
    """Return the places of the devices of each unit."""
    places, size = _places(mesh, host), mesh.size // row_parts(mesh)
    return [places[first : first + size] for first in range(0, mesh.size, size)]


def _places(mesh: Mesh, host: int) -> list[Place]:
    """The devices of the mesh. A device's own id is no number that a person could look for; and on a TPU the runtime,
    not we, says which process is which, so that the hosts tell each other their numbers."""
    hosts = np.ravel(multihost_utils.process_allgather(np.array(host))).tolist()
    number = {
        device: i
        for process in range(len(hosts))
        for i, device in enumerate(jax.local_devices(process))
    }
    return [Place(hosts[device.process_index], number[device]) for device in mesh.devices.flat]
