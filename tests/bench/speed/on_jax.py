"""Training steps of `workloads.lm` and `workloads.vit` through the frame, and matrix products alone, on one device."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.bench.speed.rows import Size
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.frame.workload import Batch, ByRow, Watch, Workload
from workloads.lm import LmConfig, loss, model
from workloads.lm.workload import LmWorkload

WARM, STEPS, TAKES = 3, 20, 3  #: steps before, steps of a sample, samples


def device() -> str:
    return jax.devices()[0].device_kind


def gemm(seconds: float, size: int = 8192) -> list[float]:
    """FLOP/s of square bfloat16 products, for each second or so of that time. A GPU gets slower as it gets warm: the
    last of them is the rate that a training step can hope for."""
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.bfloat16)
    many = jax.jit(lambda a, b: jax.lax.fori_loop(0, 20, lambda _, b: (a @ b) * (1 / size), b))
    b = jax.block_until_ready(many(a, a))
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        calls = 0
        while time.perf_counter() < min(start + 1, end):
            b = jax.block_until_ready(many(a, b))
            calls += 1
        rates.append(calls * 20 * 2 * size**3 / (time.perf_counter() - start))
    return rates


def llama(size: Size, batch: int = 8, steps: int = STEPS, **changes: Any) -> dict[str, float]:
    """Seconds of a step, and the bytes of the device that were in use at most."""
    wait, fp8 = changes.pop("wait", False), changes.pop("fp8", False)
    kind = partial(_Llama, changes.pop("plain_loss", False), changes.pop("master", False))
    shape = {name: getattr(size, name) for name in Size.__dataclass_fields__ if name != "sequence"}
    settings = {"loss_chunk": 2048, "dtype": "bfloat16", **shape, **changes}
    config = LmConfig(batch=batch, sequence=size.sequence, context=size.sequence, **settings)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, size.vocab, (batch, size.sequence + 1), dtype=np.int32)
    with _fp8_layers() if fp8 else contextlib.nullcontext():
        return measured(kind(config), {"tokens": tokens}, steps, wait=wait)


def vit(batch: int = 128, steps: int = STEPS, **settings: Any) -> dict[str, float]:
    """Of `workloads.vit` on random images."""
    from workloads.vit import VitConfig
    from workloads.vit.workload import VitWorkload

    workload = VitWorkload(VitConfig(batch=batch, **settings))
    rng = np.random.default_rng(0)
    rows = {
        name: rng.integers(0, 10, (batch, *row.shape)).astype(row.dtype)
        for name, row in workload.row_layout().items()
    }
    return measured(workload, rows, steps)


def measured(
    workload: Workload[Any],
    rows: Mapping[str, np.ndarray[Any, Any]],
    steps: int,
    *,
    wait: bool = False,
) -> dict[str, float]:
    """The step of the frame on one device, over the same rows. `wait`: for each step before the next one is given."""
    program = Program(workload, mesh_of(workload.config, jax.devices()[:1]))
    batch = program.batch(dict(rows))
    step, state, good = program.compile(batch), program.first_state(), program.all_good()

    def some(count: int) -> None:
        nonlocal state, good
        for _ in range(count):
            state, outcome = step(state, good, batch)
            good = outcome.good
            if wait:
                jax.block_until_ready(outcome)
        if not jax.block_until_ready(good):
            raise FloatingPointError("a step was not finite: its time means nothing")

    some(WARM)
    taken = [_seconds(partial(some, steps)) / steps for _ in range(TAKES)]
    memory = jax.devices()[0].memory_stats() or {}
    return {"seconds": statistics.median(taken), "bytes": memory.get("peak_bytes_in_use", 0)}


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class _Llama(LmWorkload):
    """With another way of doing one thing."""

    def __init__(self, plain_loss: bool, master: bool, config: LmConfig) -> None:
        super().__init__(config)
        self._plain_loss, self._master = plain_loss, master

    def model(self, rngs: Any) -> model.Llama:
        made = super().model(rngs)
        if self._master:
            for weight in jax.tree.leaves(made, is_leaf=lambda leaf: hasattr(leaf, "set_value")):
                weight[...] = weight[...].astype(jnp.bfloat16)
        return made

    def optimizer(self) -> optax.GradientTransformation:
        return with_master(super().optimizer()) if self._master else super().optimizer()

    def loss(self, model: model.Llama, batch: Batch, watch: Watch) -> ByRow:
        if not self._plain_loss:
            return super().loss(model, batch, watch)
        tokens = batch["tokens"]
        x, head = model(tokens[:, :-1], None, watch)
        counts = jnp.ones(tokens[:, 1:].shape)
        losses = loss.plain_cross_entropy(x, head[0], tokens[:, 1:], counts)
        return ByRow(losses, counts.sum(axis=1))


def with_master(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser for bfloat16 weights: it keeps them in float32, too, and each update leads to these, rounded."""

    def wide(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(jnp.float32), tree)

    def init(weights: Any) -> Any:
        return wide(weights), inner.init(wide(weights))

    def update(gradients: Any, state: Any, weights: Any) -> Any:
        master, inner_state = state
        updates, inner_state = inner.update(wide(gradients), inner_state, master)
        master = optax.apply_updates(master, updates)
        return jax.tree.map(jnp.subtract, master, wide(weights)), (master, inner_state)

    return optax.GradientTransformation(init, update)


# FP8 ------------------------------------------------------------------------------------------------------------------

_FORWARD, _BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2


@contextlib.contextmanager
def _fp8_layers() -> Iterator[None]:
    """The products of the layers, not that of the output layer, in FP8."""

    class Weight:
        def __init__(self, weight: jax.Array) -> None:
            self._weight = weight

        def __rmatmul__(self, x: jax.Array) -> jax.Array:
            return fp8_product(x, self._weight)

    with patch.object(model, "_as", lambda weight, like: Weight(weight[...].astype(like.dtype))):
        yield


@jax.custom_vjp
def fp8_product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """[..., inputs] x [inputs, outputs], each scaled by its largest number: e4m3 forwards, e5m2 for gradients."""
    return _forward(x, weight)[0]


def _forward(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, Any]:
    small_x, small_weight = _scaled(x, _FORWARD), _scaled(weight, _FORWARD)
    return _product("...i,io->...o", small_x, small_weight, x.dtype), (small_x, small_weight)


def _backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    (x, weight), small = kept, _scaled(gradient, _BACKWARD)
    flat_x = (x[0].reshape(-1, x[0].shape[-1]), x[1])
    flat = (small[0].reshape(-1, gradient.shape[-1]), small[1])
    of_x = _product("...o,io->...i", small, weight, gradient.dtype)
    return of_x, _product("ni,no->io", flat_x, flat, gradient.dtype)


fp8_product.defvjp(_forward, _backward)


def _scaled(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    scale = jnp.maximum(jnp.abs(x).max().astype(jnp.float32), 1e-12) / float(jnp.finfo(dtype).max)
    return (x.astype(jnp.float32) / scale).astype(dtype), scale


def _product(
    formula: str, a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array], dtype: Any
) -> jax.Array:
    found = jnp.einsum(formula, a[0], b[0], preferred_element_type=jnp.float32)
    return (found * (a[1] * b[1])).astype(dtype)
