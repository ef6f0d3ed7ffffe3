"""What runs on the devices: the mesh, the first state, one training step, one test. All under `jit`.

The state (weights, optimizer, counters) is one nnx State, laid out as the model's annotations say.
The mesh has two axes: `data` splits the batch, `tensor` splits the layers that the model annotates.

A step whose loss or gradients are not finite changes nothing, nor does any step after it, so that the
state before it is still there when somebody looks. (Of layers that are split over devices a part with
bad gradients may stay alone, and the rest be ahead by up to two steps: to agree would take a further
exchange in every step, and a verdict does not hang on it.) Each device notes which of its rows and
gradients were not finite *before* they are mixed with those of others: that is how it is found
(`replay.py`). The notes stay where they are made, which costs a step next to nothing.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from workloads.blame import Bad, marks
from workloads.config import ConfigError, TrainConfig
from workloads.data import Dataset, Rows
from workloads.exchange import Finite, finite, keep_unless, mean_over_data

#: Steps over which the learning rate rises, at most; a tenth of the run if that is less.
_WARM_UP = 100

#: For a program that runs once: on CPU it compiles in 1 s then, instead of 4.
_IN_HASTE: dict[str, Any] = {"xla_backend_optimization_level": 0}


class Workload(Protocol):
    """What the loop needs to know of a model. Everything is in terms of rows; batches are the loop's."""

    @property
    def title(self) -> str:
        """One line that says what is trained."""
        ...

    @property
    def split_sizes(self) -> tuple[int, ...]:
        """Sizes that the `tensor` axis must divide."""
        ...

    def dataset(self) -> Dataset: ...
    def model(self, rngs: nnx.Rngs) -> nnx.Module: ...
    def losses(self, model: Any, rows: dict[str, jax.Array]) -> jax.Array:
        """The loss of each row. What is trained on is their mean."""
        ...

    def right(self, model: Any, rows: dict[str, jax.Array]) -> jax.Array:
        """For each row, whether the model has it right."""
        ...


class StepOutcome(NamedTuple):
    """What a step says of itself."""

    #: Whether it and all steps before it are finite, as each device of a copy of the model sees its part.
    good: Finite
    loss: jax.Array
    #: Of each row, whether its loss is finite. Split over `data`: a host has only its own.
    rows: jax.Array
    #: [data, tensor]: of each device, whether the gradients that it computed are finite. Only its own.
    gradients: jax.Array


def mesh_of(config: TrainConfig, workload: Workload) -> Mesh:
    """All devices of all hosts. Raises ConfigError if the settings do not divide by them."""
    devices, local = jax.device_count(), jax.local_device_count()
    tensor = config.tensor
    if tensor == 0:
        shared = local if jax.default_backend() == "cpu" else 1
        tensor = math.gcd(shared, *workload.split_sizes)
    if local % tensor:
        raise ConfigError(f"tensor={tensor} does not divide the {local} devices of a host")
    for size in workload.split_sizes:
        if size % tensor:
            raise ConfigError(f"tensor={tensor} does not divide a layer of {size}")
    if config.batch % (devices // tensor):
        parts = devices // tensor
        raise ConfigError(f"batch={config.batch} does not divide by {parts}, the parts of the mesh")
    return jax.make_mesh((devices // tensor, tensor), ("data", "tensor"), (AxisType.Auto,) * 2)


class Program:
    """The compiled parts of a workload on a mesh."""

    def __init__(self, workload: Workload, config: TrainConfig, mesh: Mesh) -> None:
        self._workload = workload
        self.config = config
        self.mesh = mesh
        self._by_row = NamedSharding(mesh, PartitionSpec("data"))
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._by_device = NamedSharding(mesh, PartitionSpec("data", "tensor"))
        with jax.set_mesh(mesh):
            self._graph, self.layout = nnx.get_abstract_model(self._modules, mesh)
        self.shardings = jax.tree.map(lambda leaf: leaf.sharding, self.layout)
        self._test = jax.jit(self._count_right, out_shardings=self._whole)

    def first_state(self) -> Any:
        """The state before step 1: a function of the seed, whatever the mesh."""
        with jax.set_mesh(self.mesh):
            make = jax.jit(
                lambda: nnx.state(self._modules()),
                out_shardings=self.shardings,
                compiler_options=_IN_HASTE if jax.default_backend() == "cpu" else None,
            )
            return make()

    def compile(
        self, batch: dict[str, jax.Array], *, in_haste: bool = False
    ) -> jax.stages.Compiled:
        """`(state, good, batch) -> (state, StepOutcome)` for batches like this one. Consumes its state.

        `good` is that of the step before, or `all_good()`; if it does not hold, the state stays as it is.
        """
        outcome = self._good, self._whole, self._by_row, self._by_device
        layout = self.shardings, StepOutcome._make(outcome)
        step = jax.jit(self._step, donate_argnums=0, out_shardings=layout)
        options = _IN_HASTE if in_haste and jax.default_backend() == "cpu" else None
        return step.lower(self.layout, self.all_good(), batch).compile(options)

    def all_good(self) -> Finite:
        """What the first step is given for the outcome of the one before it."""
        whole, parts = np.array(True), np.ones(self.mesh.shape["tensor"], dtype=bool)
        layout: Any = self._good
        return Finite(
            jax.make_array_from_callback(whole.shape, layout.whole, whole.__getitem__),
            jax.make_array_from_callback(parts.shape, layout.parts, parts.__getitem__),
        )

    @property
    def _good(self) -> Any:
        layout: Any = self._whole, NamedSharding(self.mesh, PartitionSpec("tensor"))
        return Finite._make(layout)

    def batch(self, rows: Rows) -> dict[str, jax.Array]:
        """One batch over all devices, of which this host has these rows."""
        return {
            name: jax.make_array_from_process_local_data(self._by_row, array)
            for name, array in rows.items()
        }

    def moved(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The batch with each row where the next part of the `data` axis has it."""
        parts = self.mesh.shape["data"]
        return self.laid_out(batch, lambda array: jnp.roll(array, array.shape[0] // parts, axis=0))

    def laid_out(
        self, batch: dict[str, jax.Array], change: Callable[[jax.Array], jax.Array]
    ) -> dict[str, jax.Array]:
        """A changed batch, laid out over this mesh by its rows, wherever it was before."""
        return jax.jit(partial(jax.tree.map, change), out_shardings=self._by_row)(batch)

    def is_good(self, outcome: StepOutcome) -> bool:
        """Whether the step and all before it were finite; waits for it. All hosts get the same answer, as
        each has all parts of a copy of the model."""
        shards = outcome.good.parts.addressable_shards
        return all(bool(np.asarray(shard.data).all()) for shard in shards)

    def bad(self, outcome: StepOutcome) -> Bad:
        """What was bad in a step, by parts of the `data` axis. All hosts learn of all."""
        notes = outcome.rows, outcome.gradients
        rows, gradients = jax.jit(_same, out_shardings=self._whole)(notes)
        return marks(np.asarray(rows), np.asarray(gradients))

    def on(self, mesh: Mesh) -> Program:
        """The same program on the same devices in another mesh."""
        return Program(self._workload, self.config, mesh)

    def taken_over(self, state: Any) -> Any:
        """A state from another mesh of the same devices, laid out for this one."""
        return jax.jit(_same, out_shardings=self.shardings)(state)

    def sound(self, state: Any) -> np.ndarray[Any, Any]:
        """[data, tensor]: whether what each device holds of the state is finite. All hosts learn of all."""
        return np.asarray(self._sound(state))

    @cached_property
    def _sound(self) -> Callable[[Any], jax.Array]:
        def own(state: Any) -> jax.Array:
            floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.inexact)]
            return jnp.stack([jnp.isfinite(x).all() for x in floats]).all()[None, None]

        specs = jax.tree.map(lambda leaf: leaf.spec, self.shardings)
        by_device = PartitionSpec("data", "tensor")
        check = jax.shard_map(
            own, mesh=self.mesh, in_specs=(specs,), out_specs=by_device, check_vma=False
        )
        return jax.jit(check, out_shardings=self._whole)

    def count_right(self, state: Any, rows: Rows) -> int:
        """How many of these rows, which every host has all of, the model has right."""
        count = len(next(iter(rows.values())))
        padding = -count % self.mesh.shape["data"]
        padded = {name: _pad(array, padding) for name, array in rows.items()}
        counts = np.arange(count + padding) < count
        return int(
            self._test(state, self._spread(padded), self._spread({"counts": counts})["counts"])
        )

    def _spread(self, rows: Rows) -> dict[str, jax.Array]:
        return {
            name: jax.make_array_from_callback(array.shape, self._by_row, array.__getitem__)
            for name, array in rows.items()
        }

    def _modules(self) -> tuple[nnx.Module, nnx.Optimizer[Any]]:
        model = self._workload.model(nnx.Rngs(self.config.seed))
        return model, nnx.Optimizer(model, _optimizer(self.config), wrt=nnx.Param)

    def _step(
        self, state: Any, before: Finite, rows: dict[str, jax.Array]
    ) -> tuple[Any, StepOutcome]:
        # without a copy the update would change `state` too, and nothing be left to go back to
        model, optimizer = nnx.merge(self._graph, state, copy=True)
        loss, gradients, good, notes = self._gradients(model, rows)
        good = jax.tree.map(jnp.logical_and, before, good)
        optimizer.update(model, gradients)
        after = keep_unless(good, nnx.state((model, optimizer)), state, self.shardings)
        return after, StepOutcome(good, loss, *notes)

    def _gradients(self, model: nnx.Module, rows: dict[str, jax.Array]) -> Any:
        """The mean loss over all rows, its gradients, whether they are finite, and the notes (see StepOutcome).

        Each part of the `data` axis computes those of its own rows, then they average; JAX sees to the
        `tensor` axis."""
        graph, parameters, others = nnx.split(model, nnx.Param, ...)
        layouts = self._whole, self._gradient_layout

        def of_rows(parameters: Any, others: Any, rows: dict[str, jax.Array]) -> Any:
            def loss(parameters: Any) -> tuple[jax.Array, jax.Array]:
                losses = self._workload.losses(nnx.merge(graph, parameters, others), rows)
                return losses.mean(), jnp.isfinite(losses)

            return jax.value_and_grad(loss, has_aux=True)(parameters)

        def of_part(*own: Any) -> Any:
            (loss, finite_rows), gradients = of_rows(*own)
            mean, ours, all_of_them = mean_over_data((loss, gradients), layouts)
            return *mean, all_of_them, (finite_rows, ours.parts[None])

        if self.mesh.shape["data"] == 1:
            (loss, finite_rows), gradients = of_rows(parameters, others, rows)
            good = finite((loss, gradients), layouts)
            return loss, gradients, good, (finite_rows, good.parts[None])
        everywhere, by_row = PartitionSpec(), PartitionSpec("data")
        compute = jax.shard_map(
            of_part,
            mesh=self.mesh,
            in_specs=(everywhere, everywhere, by_row),
            out_specs=(everywhere, everywhere, everywhere, by_row),
            axis_names={"data"},
            check_vma=False,
        )
        return compute(parameters, others, rows)

    @cached_property
    def _gradient_layout(self) -> Any:
        return nnx.split(nnx.merge(self._graph, self.shardings)[0], nnx.Param, ...)[1]

    def _count_right(self, state: Any, rows: dict[str, jax.Array], counts: jax.Array) -> jax.Array:
        model, _ = nnx.merge(self._graph, state)
        return jnp.sum(self._workload.right(model, rows) & counts)


def _optimizer(config: TrainConfig) -> optax.GradientTransformation:
    rising = min(_WARM_UP, config.steps // 10)
    rate = optax.warmup_cosine_decay_schedule(0.0, config.lr, rising, config.steps)
    return optax.adamw(rate, weight_decay=config.weight_decay)


def _same(value: Any) -> Any:
    return value


def _pad(array: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    return np.pad(array, [(0, rows)] + [(0, 0)] * (array.ndim - 1))
