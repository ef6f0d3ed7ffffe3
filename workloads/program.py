"""What runs on the devices: the mesh, the first state, one training step, one test. All under `jit`.

The state (weights, optimizer, counters) is one nnx State, laid out as the model's annotations say.
The mesh has two axes: `data` splits the batch, `tensor` splits the layers that the model annotates.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from workloads.config import ConfigError, TrainConfig
from workloads.data import Dataset, Rows
from workloads.exchange import mean_over_data

#: Steps over which the learning rate rises, at most; a tenth of the run if that is less.
_WARM_UP = 100

#: For a program that runs once: on CPU it compiles in 1 s then, instead of 4.
_IN_HASTE = {"xla_backend_optimization_level": 0}


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
    def loss(self, model: Any, rows: dict[str, jax.Array]) -> jax.Array:
        """The mean over the rows."""
        ...

    def right(self, model: Any, rows: dict[str, jax.Array]) -> jax.Array:
        """For each row, whether the model has it right."""
        ...


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
        self._config = config
        self._mesh = mesh
        self._by_row = NamedSharding(mesh, PartitionSpec("data"))
        self._whole = NamedSharding(mesh, PartitionSpec())
        with jax.set_mesh(mesh):
            self._graph, self.layout = nnx.get_abstract_model(self._modules, mesh)
        self._shardings = jax.tree.map(lambda leaf: leaf.sharding, self.layout)
        self._test = jax.jit(self._count_right, out_shardings=self._whole)

    def first_state(self) -> Any:
        """The state before step 1: a function of the seed, whatever the mesh."""
        with jax.set_mesh(self._mesh):
            make = jax.jit(
                lambda: nnx.state(self._modules()),
                out_shardings=self._shardings,
                compiler_options=_IN_HASTE if jax.default_backend() == "cpu" else None,
            )
            return make()

    def compile(self, rows: Rows) -> jax.stages.Compiled:
        """`(state, batch) -> (state, loss)` for batches like these local rows. Consumes its state."""
        step = jax.jit(self._step, donate_argnums=0, out_shardings=(self._shardings, self._whole))
        return step.lower(self.layout, self.batch(rows)).compile()

    def batch(self, rows: Rows) -> dict[str, jax.Array]:
        """One batch over all devices, of which this host has these rows."""
        return {
            name: jax.make_array_from_process_local_data(self._by_row, array)
            for name, array in rows.items()
        }

    def count_right(self, state: Any, rows: Rows) -> int:
        """How many of these rows, which every host has all of, the model has right."""
        count = len(next(iter(rows.values())))
        padding = -count % self._mesh.shape["data"]
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
        model = self._workload.model(nnx.Rngs(self._config.seed))
        return model, nnx.Optimizer(model, _optimizer(self._config), wrt=nnx.Param)

    def _step(self, state: Any, rows: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        model, optimizer = nnx.merge(self._graph, state)
        loss, gradients = self._gradients(model, rows)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

    def _gradients(self, model: nnx.Module, rows: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
        """The mean loss over all rows, and its gradients. Each part of the `data` axis computes those of
        its own rows, then they average; JAX sees to the `tensor` axis."""
        graph, parameters, others = nnx.split(model, nnx.Param, ...)
        _, layout, _ = nnx.split(nnx.merge(self._graph, self._shardings)[0], nnx.Param, ...)

        def of_rows(parameters: Any, others: Any, rows: dict[str, jax.Array]) -> Any:
            def loss(parameters: Any) -> jax.Array:
                return self._workload.loss(nnx.merge(graph, parameters, others), rows)

            return jax.value_and_grad(loss)(parameters)

        if self._mesh.shape["data"] == 1:
            return of_rows(parameters, others, rows)
        everywhere, by_row = PartitionSpec(), PartitionSpec("data")
        compute = jax.shard_map(
            lambda *own: mean_over_data(of_rows(*own), (self._whole, layout)),
            mesh=self._mesh,
            in_specs=(everywhere, everywhere, by_row),
            out_specs=everywhere,
            axis_names={"data"},
            check_vma=False,
        )
        return compute(parameters, others, rows)

    def _count_right(self, state: Any, rows: dict[str, jax.Array], counts: jax.Array) -> jax.Array:
        model, _ = nnx.merge(self._graph, state)
        return jnp.sum(self._workload.right(model, rows) & counts)


def _optimizer(config: TrainConfig) -> optax.GradientTransformation:
    rising = min(_WARM_UP, config.steps // 10)
    rate = optax.warmup_cosine_decay_schedule(0.0, config.lr, rising, config.steps)
    return optax.adamw(rate, weight_decay=config.weight_decay)


def _pad(array: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    return np.pad(array, [(0, rows)] + [(0, 0)] * (array.ndim - 1))
