"""What runs on the devices: the first state, one training step, one batch of a test. All under `jit`.

The state (parameters, optimiser, counters, random keys) is one nnx State of plain arrays, laid out by the rules of
`mesh.py`; the compiler makes the exchanges. A step whose loss or gradients are not finite leaves the model as it is,
and so does any step after it: it can be replayed, but not gone on from, as the optimizer has moved on. Each step says
which rows were not finite, forwards and backwards, before rows are mixed: `blame.py` finds the device from that.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.data.rows import Rows, RowSource
from workloads.frame.mesh import AXES, ROWS, row_parts, spec_of
from workloads.frame.workload import Batch, ByRow, Workload

#: Where the state has the model, before the optimizer.
_MODEL = 0
#: For a program that runs once: on CPU it compiles in 1 s then, instead of 4.
_IN_HASTE: dict[str, Any] = {"xla_backend_optimization_level": 0}


class StepOutcome(NamedTuple):
    """What a step says of itself."""

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
        self._by_row = NamedSharding(mesh, PartitionSpec(ROWS))
        self._whole = NamedSharding(mesh, PartitionSpec())
        with nnx.use_eager_sharding(False):
            self._graph, self._shapes = nnx.split(nnx.eval_shape(self._modules))
        plain = jax.eval_shape(_plain, self._shapes)
        #: The state as `jax.ShapeDtypeStruct`s with their shardings, and the shardings alone.
        self.layout = jax.tree.map(self._laid_out, plain, is_leaf=_is_variable)
        self.shardings = jax.tree.map(lambda leaf: leaf.sharding, self.layout)

    def first_state(self) -> Any:
        """The state before step 1: a function of the seed, whatever the mesh."""
        options = _IN_HASTE if self._on_cpu else None
        with jax.set_mesh(self.mesh), nnx.use_eager_sharding(False):
            make = jax.jit(
                lambda: _plain(nnx.state(self._modules())),
                out_shardings=self.shardings,
                compiler_options=options,
            )
            return make()

    def trace(self, batch: Mapping[str, Any]) -> jax.stages.Traced:
        """The step of `lower`, before it is lowered for any device."""
        outcome: Any = (self._whole, self._whole, self._whole, self._by_row, self._by_row)
        layout = self.shardings, StepOutcome._make(outcome)
        step = jax.jit(self._step, donate_argnums=0, out_shardings=layout)
        good = jax.ShapeDtypeStruct((), jnp.bool_, sharding=self._whole)
        shapes = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self._by_row), dict(batch)
        )
        with jax.set_mesh(self.mesh):
            return step.trace(self.layout, good, shapes)

    def lower(self, batch: Mapping[str, Any]) -> jax.stages.Lowered:
        """`(state, good, batch) -> (state, StepOutcome)` for batches like this one: arrays of a batch, or their
        `ShapeDtypeStruct`s. The step consumes its state. `good` is that of the step before, or `all_good()`; if
        it does not hold, the model stays as it is, and the state is good for a replay alone.
        """
        with jax.set_mesh(self.mesh):
            return self.trace(batch).lower()

    def compile(self, batch: Mapping[str, Any], *, in_haste: bool = False) -> jax.stages.Compiled:
        """The step of `lower`, for the devices of this mesh."""
        return self.lower(batch).compile(_IN_HASTE if in_haste and self._on_cpu else None)

    def all_good(self) -> jax.Array:
        """What the first step is given for the outcome of the one before it."""
        return jax.make_array_from_callback((), self._whole, np.array(True).__getitem__)

    def batch(self, rows: Rows) -> Batch:
        """One batch over all devices, of which this host has these rows."""
        return {
            name: jax.make_array_from_process_local_data(self._by_row, array)
            for name, array in rows.items()
        }

    def evaluate(self, state: Any, source: RowSource) -> dict[str, float]:
        """The metrics over all rows of a source that every host has, in batches of the usual size."""
        sums: dict[str, list[jax.Array]] = defaultdict(list)
        for start in range(0, len(source), self.config.batch):
            batch, counts = self._piece(source, start)
            with jax.set_mesh(self.mesh):
                tested = self._test(state, batch, counts)
            for name, found in tested.items():
                sums[name].append(found)
        totals = {
            name: np.sum([np.asarray(x) for x in found], axis=0) for name, found in sums.items()
        }
        means = {name: float(value / weight) for name, (value, weight) in totals.items()}
        return self.workload.summary(means) if means else {}

    def apart(self) -> Program:
        """The same program with rows of its own on each device. The parameters are split over all devices of a
        slice, so that none holds more of them than before."""
        slices = self.mesh.devices.reshape(self.mesh.shape["dcn"], 1, -1, 1)
        return Program(self.workload, Mesh(slices, AXES, axis_types=self.mesh.axis_types))

    def taken_over(self, state: Any) -> Any:
        """A state from another mesh of the same devices, laid out for this one."""
        return jax.jit(_same, out_shardings=self.shardings)(state)

    def rearranged(self, batch: Batch, rows: np.ndarray[Any, Any]) -> Batch:
        """A batch of these rows of a batch, which may be on another mesh of the same devices."""
        return self._rearranged(batch, rows)

    def sound(self, state: Any) -> np.ndarray[Any, Any]:
        """bool [devices in the order of the mesh, arrays of floats]: what each device holds of the array is finite.
        Those of the model come first. All hosts learn of all, so all must call it."""
        return np.asarray(self._sound(state)).reshape(self.mesh.size, -1)

    @property
    def model_arrays(self) -> int:
        """How many of the arrays of `sound` are of the model."""
        return sum(map(_is_float, jax.tree.leaves(self.layout[_MODEL])))

    def parts(self) -> np.ndarray[Any, Any]:
        """int [devices, arrays], as of `sound`: the number of the part of the array that the device holds."""
        arrays = [x for x in jax.tree.leaves(self.layout) if _is_float(x)]
        return np.stack([_parts(x.sharding, x.shape, self.mesh) for x in arrays], axis=1)

    def by_unit(self, state: Any, batch: Batch) -> np.ndarray[Any, Any]:
        """float32 [units, 3]: of the rows of each unit alone, computed there, the sum of the losses, the norm of its
        gradients, and the sum of the weights. All hosts learn of all, so all must call it."""
        return np.asarray(self._by_unit(state, batch))

    def everywhere(self, tree: Any) -> Any:
        """Arrays of this mesh as NumPy's, whole, on every host. All hosts must call it."""
        return jax.tree.map(np.asarray, jax.jit(_same, out_shardings=self._whole)(tree))

    @property
    def _on_cpu(self) -> bool:
        return self.mesh.devices.flat[0].platform == "cpu"

    def _laid_out(self, variable: nnx.Variable[Any]) -> Any:
        """The variable, with the shape, type and sharding of its array in place of it."""
        names = variable.get_metadata("out_sharding", None)
        where = NamedSharding(self.mesh, spec_of(names, variable.shape, self.mesh))
        return variable.replace(
            jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=where)
        )

    def _modules(self) -> tuple[nnx.Module, nnx.Optimizer[Any]]:
        model = self.workload.model(nnx.Rngs(self.config.seed))
        return model, nnx.Optimizer(model, self.workload.optimizer(), wrt=nnx.Param)

    def _merged(self, state: Any) -> tuple[Any, nnx.Optimizer[Any]]:
        """The modules with this state. They have copies: without, an update would change `state`, too."""
        return nnx.merge(self._graph, jax.tree.map(_as, self._shapes, state), copy=True)

    def _step(self, state: Any, before: jax.Array, batch: Batch) -> tuple[Any, StepOutcome]:
        model, optimizer = self._merged(state)
        loss, gradients, forward, backward = self._gradients(model, batch)
        norm = optax.tree.norm(gradients)
        good = before & jnp.isfinite(loss) & jnp.isfinite(norm)
        optimizer.update(model, _clipped(gradients, norm, self.config.clip))
        after = _plain(nnx.state((model, optimizer)))
        # of the optimizer nothing is needed any more; to keep it, too, costs a tenth of a step of the mlp on CPU
        after[_MODEL] = jax.tree.map(partial(jnp.where, good), after[_MODEL], state[_MODEL])
        return after, StepOutcome(good, loss, norm, forward, backward)

    def _gradients(self, model: nnx.Module, batch: Batch) -> tuple[Any, Any, jax.Array, jax.Array]:
        """The mean loss, its gradients, and of each row whether its loss and its gradients are finite. What
        else the model keeps (counts, running means) has moved on in `model`."""
        graph, parameters, others = nnx.split(model, nnx.Param, ...)
        rows = len(next(iter(batch.values())))

        def mean(parameters: Any, probe: jax.Array) -> tuple[jax.Array, Any]:
            trained = nnx.merge(graph, parameters, others, copy=True)
            found = self.workload.loss(trained, batch, partial(_watched, probe=probe))
            moved = nnx.state(trained, nnx.Not(nnx.Param))
            return _mean(found), (jnp.isfinite(found.values), moved)

        probe = jax.lax.with_sharding_constraint(jnp.zeros(rows), self._by_row)
        compute = jax.value_and_grad(mean, argnums=(0, 1), has_aux=True)
        (loss, (forward, moved)), (gradients, bad) = compute(parameters, probe)
        nnx.update(model, moved)
        return loss, gradients, forward, bad == 0

    @cached_property
    def _rearranged(self) -> Callable[[Batch, Any], Batch]:
        def take(batch: Batch, rows: jax.Array) -> Batch:
            return {name: jnp.take(array, rows, axis=0) for name, array in batch.items()}

        return jax.jit(take, out_shardings=self._by_row)

    @cached_property
    def _sound(self) -> Callable[[Any], jax.Array]:
        def own(state: Any) -> jax.Array:
            floats = [x for x in jax.tree.leaves(state) if _is_float(x)]
            return jnp.stack([jnp.isfinite(x).all() for x in floats])[(None,) * len(AXES)]

        specs = jax.tree.map(lambda leaf: leaf.spec, self.shardings)
        by_device = PartitionSpec(*AXES)
        check = jax.shard_map(
            own, mesh=self.mesh, in_specs=(specs,), out_specs=by_device, check_vma=False
        )
        return jax.jit(check, out_shardings=self._whole)

    @cached_property
    def _by_unit(self) -> Callable[[Any, Batch], jax.Array]:
        def one(state: Any, batch: Batch) -> jax.Array:
            model, _ = self._merged(state)
            graph, parameters, others = nnx.split(model, nnx.Param, ...)

            def total(parameters: Any) -> tuple[jax.Array, jax.Array]:
                trained = nnx.merge(graph, parameters, others, copy=True)
                found = self.workload.loss(trained, batch, _same)
                return found.values.sum(), found.weights.sum()

            (loss, weight), gradients = jax.value_and_grad(total, has_aux=True)(parameters)
            return jnp.stack([loss, optax.tree.norm(gradients), weight])

        def all_units(state: Any, batch: Batch) -> jax.Array:
            units = row_parts(self.mesh)
            split = jax.tree.map(lambda a: a.reshape(units, -1, *a.shape[1:]), batch)
            split = jax.lax.with_sharding_constraint(split, self._by_row)
            return jax.vmap(one, in_axes=(None, 0), spmd_axis_name=ROWS)(state, split)

        options = _IN_HASTE if self._on_cpu else None
        return jax.jit(all_units, out_shardings=self._whole, compiler_options=options)

    def _piece(self, source: RowSource, start: int) -> tuple[Batch, jax.Array]:
        """The rows from `start` on as a batch, filled up with copies of the last one, and which of them count."""
        size = self.config.batch
        which = np.minimum(np.arange(start, start + size), len(source) - 1)
        example = source.take(which[:1])

        @cache  # several arrays, and devices that share rows, ask for the same ones
        def taken(first: int, last: int) -> Rows:
            return source.take(which[first:last])

        def rows(name: str, index: tuple[slice, ...]) -> Any:
            first, last, _ = index[0].indices(size)
            return taken(first, last)[name][(slice(None), *index[1:])]

        batch = {
            name: jax.make_array_from_callback(
                (size, *one.shape[1:]), self._by_row, partial(rows, name)
            )
            for name, one in example.items()
        }
        counts = np.arange(start, start + size) < len(source)
        return batch, jax.make_array_from_callback((size,), self._by_row, counts.__getitem__)

    @cached_property
    def _test(self) -> Callable[..., dict[str, jax.Array]]:
        def test(state: Any, batch: Batch, counts: jax.Array) -> dict[str, jax.Array]:
            model, _ = self._merged(state)
            model.eval()
            found = self.workload.metrics(model, batch)
            return {
                name: jnp.stack([jnp.where(counts, part, 0).sum() for part in by_row])
                for name, by_row in found.items()
            }

        return jax.jit(test, out_shardings=self._whole)


@jax.custom_vjp
def _watched(x: jax.Array, probe: jax.Array) -> jax.Array:
    """`x`, [rows, ...]. The gradient of `probe`, float32 [rows], is then 0 where that of `x` is finite, else NaN."""
    del probe
    return x


def _watched_forward(x: jax.Array, probe: jax.Array) -> tuple[jax.Array, None]:
    del probe
    return x, None


def _watched_backward(_: None, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    # a quarter of the time that isfinite takes on CPU, and nothing elsewhere: only finite numbers times 0 are 0
    zeros = jnp.zeros(gradient.shape[1:], gradient.dtype)
    return gradient, jnp.tensordot(gradient, zeros, axes=zeros.ndim).astype(jnp.float32)


_watched.defvjp(_watched_forward, _watched_backward)


def _clipped(gradients: Any, norm: jax.Array, most: float) -> Any:
    """The gradients, made smaller where their norm is above `most` (0: any norm will do)."""
    if not most:
        return gradients
    factor = most / jnp.maximum(norm, most)
    return jax.tree.map(lambda gradient: gradient * factor, gradients)


def _mean(found: ByRow) -> jax.Array:
    return found.values.sum() / found.weights.sum()


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact)


def _parts(sharding: NamedSharding, shape: tuple[int, ...], mesh: Mesh) -> list[int]:
    """Of each device of the mesh, the number of the part of such an array that it holds."""
    held = sharding.devices_indices_map(shape)
    starts = [tuple(part.start for part in held[device]) for device in mesh.devices.flat]
    return [starts.index(start) for start in starts]


def _is_key(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def _plain(state: Any) -> Any:
    """The state with numbers in place of random keys, which neither checkpoints nor checks can hold."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)


def _as(shape: Any, array: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(array) if _is_key(shape) else array


def _is_variable(leaf: object) -> bool:
    return isinstance(leaf, nnx.Variable)


def _same(value: Any) -> Any:
    return value
