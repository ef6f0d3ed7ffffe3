"""The compiled programs of a workload: the first state, one training step, one batch of a test. All under `jit`.

The state (parameters, optimiser, counters, random keys) is one nnx State of plain arrays, laid out by the rules of
`mesh.py`; the compiler makes the exchanges. A step whose loss or gradients are not finite leaves the model as it is,
and so does any step after it: it can be replayed, but not gone on from, as the optimizer has moved on. Each step says
which rows were not finite, forwards and backwards, before rows are mixed: `verdicts/` finds the device from that.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.data.rows import Rows, RowSource
from workloads.frame.mesh import ROWS, spec_of
from workloads.frame.parts import cut, each_part, joined
from workloads.frame.workload import Batch, Workload

#: Index of the model in the state, before the optimizer.
MODEL = 0


class StepOutcome(NamedTuple):
    """The results of a step, beside its state."""

    good: jax.Array  #: bool: this step and all before it were finite; the same on all hosts
    loss: jax.Array  #: float32, the mean that was trained on
    gradient_norm: jax.Array  #: float32, before clipping
    #: bool [rows]: the loss of the row is finite. Split as the rows are: a host has only its own.
    forward: jax.Array
    #: bool [rows]: the gradients of the row's activations are finite
    backward: jax.Array


class Program:
    """The compiled parts of a workload on a mesh."""

    def __init__(self, workload: Workload[Any], mesh: Mesh) -> None:
        self.workload = workload
        self.config = workload.config
        self.mesh = mesh
        #: The split of a batch's rows.
        self.by_row = NamedSharding(mesh, PartitionSpec(ROWS))
        self._whole = NamedSharding(mesh, PartitionSpec())
        on_cpu = mesh.devices.flat[0].platform == "cpu"
        #: Compiler options for what runs once: a CPU's compiler takes 1 s with them, instead of 4.
        self.in_haste = {"xla_backend_optimization_level": 0} if on_cpu else None
        with nnx.use_eager_sharding(False):
            self._graph, self._shapes = nnx.split(nnx.eval_shape(self._modules))
        plain = jax.eval_shape(_plain, self._shapes)
        #: The state as `jax.ShapeDtypeStruct`s with their shardings, and the shardings alone.
        self.layout = jax.tree.map(self._laid_out, plain, is_leaf=_is_variable)
        self.shardings = jax.tree.map(lambda leaf: leaf.sharding, self.layout)

    def first_state(self) -> Any:
        """Return the state before step 1: a function of the seed, independent of the mesh."""
        with jax.set_mesh(self.mesh), nnx.use_eager_sharding(False):
            make = jax.jit(
                lambda: _plain(nnx.state(self._modules())),
                out_shardings=self.shardings,
                compiler_options=self.in_haste,
            )
            return make()

    def step(self, options: dict[str, Any] | None = None) -> jax.stages.Wrapped:
        """`(state, good, batch) -> (state, StepOutcome)`, to be traced or called with this mesh set.

        The step consumes its state. `good` is that of the step before, or `all_good()`; if it does not hold, the
        model stays as it is, and the state is good for a replay alone."""
        outcome: Any = (self._whole, self._whole, self._whole, self.by_row, self.by_row)
        layout = self.shardings, StepOutcome._make(outcome)
        return jax.jit(self._step, donate_argnums=0, out_shardings=layout, compiler_options=options)

    def arguments(self, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of the step for batches like this one, arrays or `ShapeDtypeStruct`s, without values."""
        good = jax.ShapeDtypeStruct((), jnp.bool_, sharding=self._whole)
        shapes = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self.by_row), dict(batch)
        )
        return self.layout, good, shapes

    def trace(self, batch: Mapping[str, Any]) -> jax.stages.Traced:
        """The step for batches like this one, before it is lowered for any device."""
        with jax.set_mesh(self.mesh):
            return self.step().trace(*self.arguments(batch))

    def compile(
        self, batch: Mapping[str, Any], options: dict[str, Any] | None = None
    ) -> jax.stages.Compiled:
        """The step for batches like this one, on the devices of this mesh."""
        with jax.set_mesh(self.mesh):
            return self.trace(batch).lower().compile(options)

    def all_good(self) -> jax.Array:
        """Return the `good` argument of the first step."""
        return jax.make_array_from_callback((), self._whole, np.array(True).__getitem__)

    def batch(self, rows: Rows) -> Batch:
        """Return one batch over all devices, of which this host has these rows."""
        return jax.make_array_from_process_local_data(self.by_row, rows)

    def evaluate(self, state: Any, source: RowSource) -> dict[str, float]:
        """The metrics over all rows of a source, of which each host reads its own, in batches of the size of a part of
        a step."""
        size, count = self.config.batch // self.config.accumulate, len(source)
        own = np.arange(jax.process_index(), size, jax.process_count())
        sums: list[dict[str, jax.Array]] = []
        for start in range(0, count, size):
            # the last batch is filled up with copies of the last row, which do not count
            rows = source.take(np.minimum(start + own, count - 1))
            counts = self.batch({"counts": start + own < count})["counts"]
            with jax.set_mesh(self.mesh):
                sums.append(self._test(state, self.batch(rows), counts))
        if not sums:
            return {}
        totals = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *jax.device_get(sums))
        means = {name: float(value / weight) for name, (value, weight) in totals.items()}
        return self.workload.summary(means)

    def merged(self, state: Any) -> tuple[Any, nnx.Optimizer[Any]]:
        """Return model and optimizer with copies of this state: without copies, an update would change `state`."""
        return nnx.merge(self._graph, jax.tree.map(_as, self._shapes, state), copy=True)

    def _modules(self) -> tuple[nnx.Module, nnx.Optimizer[Any]]:
        model = self.workload.model(nnx.Rngs(self.config.seed))
        return model, nnx.Optimizer(model, self.workload.optimizer(), wrt=nnx.Param)

    def _laid_out(self, variable: nnx.Variable[Any]) -> Any:
        """Return the variable with shape, type and sharding in place of its array."""
        names = variable.get_metadata("out_sharding", None)
        where = NamedSharding(self.mesh, spec_of(names, variable.shape, self.mesh))
        return variable.replace(
            jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=where)
        )

    def _step(self, state: Any, before: jax.Array, batch: Batch) -> tuple[Any, StepOutcome]:
        model, optimizer = self.merged(state)
        loss, gradients, forward, backward = self._gradients(model, batch)
        norm = optax.tree.norm(gradients)
        good = before & jnp.isfinite(loss) & jnp.isfinite(norm)
        if clip := self.config.clip:
            gradients = optax.tree.scale(clip / jnp.maximum(norm, clip), gradients)
        optimizer.update(model, gradients)
        after = _plain(nnx.state((model, optimizer)))
        # of the optimizer nothing is needed any more; to keep it, too, costs a tenth of a step of the mlp on CPU
        after[MODEL] = jax.tree.map(partial(jnp.where, good), after[MODEL], state[MODEL])
        return after, StepOutcome(good, loss, norm, forward, backward)

    def _gradients(self, model: nnx.Module, batch: Batch) -> tuple[Any, Any, jax.Array, jax.Array]:
        """Return the mean loss, its gradients, and for each row whether its loss and its gradients are finite. Other
        state of the model (counts, running means) is updated in `model`, once for each part of the batch.

        Of the parts (`accumulate`), sums are added up and divided by the sum of all weights at the end: so a part
        counts by what it has, such as its tokens, and the result is that of the whole batch."""
        graph, weights, others = nnx.split(model, nnx.Param, ...)

        def total(
            weights: Any, probe: jax.Array, others: Any, rows: Batch
        ) -> tuple[jax.Array, tuple[jax.Array, Any, jax.Array]]:
            def watch(x: jax.Array) -> jax.Array:
                # adds 0; the gradient of `probe` is 0 times the sum of that of `x`, which is NaN if one is not finite
                return x + (0 * probe).astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1))

            model = nnx.merge(graph, weights, others, copy=True)
            losses = self.workload.loss(model, rows, watch)
            others = nnx.state(model, nnx.Not(nnx.Param))
            return losses.values.sum(), (losses.weights.sum(), others, jnp.isfinite(losses.values))

        def add(carried: Any, rows: Batch) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            others, sums = carried
            count = len(next(iter(rows.values())))
            probe = jax.lax.with_sharding_constraint(jnp.zeros(count), self.by_row)
            compute = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)
            (loss, (weight, others, forward)), (gradients, bad) = compute(
                weights, probe, others, rows
            )
            sums = jax.tree.map(jnp.add, sums, (loss, weight, self._split(gradients)))
            return (others, sums), (forward, bad == 0)

        zero = jnp.zeros(())
        nothing = zero, zero, self._split(jax.tree.map(jnp.zeros_like, weights))
        parts = cut(batch, self.config.accumulate, self.mesh)
        (others, (loss, weight, gradients)), finite = each_part(add, (others, nothing), parts)
        nnx.update(model, others)
        forward, backward = joined(finite, self.mesh)
        return loss / weight, optax.tree.scale(1 / weight, gradients), forward, backward

    def _split(self, gradients: Any) -> Any:
        """The gradients, split as the parameters are: a device adds up its own part alone."""
        return jax.lax.with_sharding_constraint(
            gradients, nnx.filter_state(self.shardings[MODEL], nnx.Param)
        )

    @cached_property
    def _test(self) -> Callable[..., dict[str, jax.Array]]:
        def test(state: Any, batch: Batch, counts: jax.Array) -> dict[str, jax.Array]:
            model, _ = self.merged(state)
            model.eval()
            metrics = self.workload.metrics(model, batch)
            return {
                name: jnp.stack([jnp.where(counts, part, 0).sum() for part in by_row])
                for name, by_row in metrics.items()
            }

        return jax.jit(test, out_shardings=self._whole)


def _is_key(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def _plain(state: Any) -> Any:
    """Return the state with numbers in place of random keys, which neither checkpoints nor checks can hold."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)


def _as(shape: Any, array: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(array) if _is_key(shape) else array


def _is_variable(leaf: object) -> bool:
    return isinstance(leaf, nnx.Variable)
