"""The measured tasks: five tables, each of one task done in several ways. A way returns once its result is ready.

The tasks are those of the usual talks: a vectorised function, SELU, the squared distance of many pairs, a batched
prediction. The derivatives are not timed: they are known.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from workloads.measure.samples import Way
from workloads.tables import TablesConfig


class Table(NamedTuple):
    """One task and the ways of doing it. The first one is what the others are compared with."""

    name: str  #: in metrics
    title: str
    ways: dict[str, Way]
    #: of a way that does a part of the task only: which part; its time is multiplied up
    parts: dict[str, float]
    tolerance: float  #: by how much, relatively, the results may differ
    note: str = ""  #: what a reader has to know


def tables(config: TablesConfig) -> list[Table]:
    rng = np.random.default_rng(config.seed)
    return [
        vectorised(rng, config.elements),
        selu(rng, config.elements),
        distances(rng, config.pairs, config.loop_s),
        prediction(rng, config.rows),
    ]


def vectorised(rng: np.random.Generator, elements: int) -> Table:
    """A function of two vectors, written once with `np` and once with `jnp`."""

    def function(xp: Any, x: Any, y: Any) -> Any:
        z = 3 * x * x + 2 * x * y - y * y
        return (z + x - y) / (1 + xp.abs(z))

    x, y = rng.normal(size=(2, elements)).astype(np.float32)
    ways = _three_ways(function, x, y)
    return Table("vectorised", f"a function of two vectors of {elements:,}", ways, {}, 1e-4)


def selu(rng: np.random.Generator, elements: int) -> Table:
    """The activation of self-normalising networks, arXiv:1706.02515, with its constants rounded to two digits."""

    def function(xp: Any, x: Any) -> Any:
        return 1.05 * xp.where(x > 0, x, 1.67 * xp.exp(x) - 1.67)

    ways = _three_ways(function, rng.normal(size=elements).astype(np.float32))
    return Table("selu", f"SELU of {elements:,} floats", ways, {}, 1e-4)


def _three_ways(function: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> dict[str, Way]:
    placed = [jnp.asarray(array) for array in arrays]
    compiled = jax.jit(lambda *operands: function(jnp, *operands))
    return {
        "NumPy": lambda: function(np, *arrays),
        "JAX": lambda: jax.block_until_ready(function(jnp, *placed)),
        "JAX + jit": lambda: jax.block_until_ready(compiled(*placed)),
    }


def distances(rng: np.random.Generator, pairs: int, loop_s: float) -> Table:
    """The squared distance of two points in three dimensions, for many pairs of them."""

    def squared(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum((a - b) ** 2)

    a, b = jnp.asarray(rng.normal(size=(2, pairs, 3)).astype(np.float32))
    mapped = jax.vmap(squared)
    compiled = jax.jit(mapped)
    rows = list(zip(a, b, strict=True))  # taking the arrays apart is no part of the loop

    def loop(count: int) -> list[jax.Array]:
        return jax.block_until_ready([squared(a, b) for a, b in rows[:count]])

    few = min(100, pairs)
    loop(few)
    start = time.perf_counter()
    loop(few)
    seconds = (time.perf_counter() - start) / few
    count = max(1, min(pairs, int(loop_s / seconds)))
    part = count / pairs
    note = f"the loop was timed over {count:,} of the pairs, and multiplied up" if part < 1 else ""
    ways: dict[str, Way] = {
        "Python loop": lambda: loop(count),
        "vmap": lambda: jax.block_until_ready(mapped(a, b)),
        "vmap + jit": lambda: jax.block_until_ready(compiled(a, b)),
    }
    title = f"squared distances of {pairs:,} pairs of points"
    return Table("distances", title, ways, {"Python loop": part}, 1e-4, note)


class _Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.second = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(nnx.relu(self.first(x)))


def prediction(rng: np.random.Generator, rows: int) -> Table:
    """A perceptron 64-128-10 on a batch. So small a model measures what a call costs, not its arithmetic."""
    model = _Classifier(nnx.Rngs(0))
    x = rng.normal(size=(rows, 64)).astype(np.float32)
    placed = jnp.asarray(x)
    by_nnx = nnx.jit(lambda model, x: model(x))
    cached = nnx.cached_partial(by_nnx, model)
    graph, state = nnx.split(model)
    by_jax = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
    ways: dict[str, Way] = {
        "NNX, op by op": lambda: jax.block_until_ready(model(placed)),
        "nnx.jit": lambda: jax.block_until_ready(by_nnx(model, placed)),
        "nnx.cached_partial": lambda: jax.block_until_ready(cached(placed)),
        "jax.jit of the split model": lambda: jax.block_until_ready(by_jax(state, placed)),
    }
    torch = _torch(model, x)
    note = "" if torch else "PyTorch on the CPU is left out: it is not installed"
    title = f"a batch of {rows} through a perceptron 64-128-10"
    # where products are made of bfloat16, as on a TPU, two libraries agree on two digits
    return Table("predict", title, {**ways, **torch}, {}, 0.05, note)


def _torch(model: _Classifier, x: np.ndarray[Any, Any]) -> dict[str, Way]:
    """The same weights in PyTorch, on the CPU; empty where it is not installed."""
    try:
        import torch
    except ImportError:
        return {}

    def linear(layer: nnx.Linear) -> Any:
        made = torch.nn.utils.skip_init(torch.nn.Linear, layer.in_features, layer.out_features)
        with torch.no_grad():
            made.weight.copy_(torch.tensor(np.asarray(layer.kernel[...]).T.copy()))
            made.bias.copy_(torch.tensor(np.asarray(layer.bias[...])))  # pyright: ignore[reportOptionalSubscript]
        return made

    net = torch.nn.Sequential(linear(model.first), torch.nn.ReLU(), linear(model.second)).eval()
    inputs = torch.tensor(x)

    def way() -> object:
        with torch.inference_mode():
            return net(inputs).numpy()

    return {f"PyTorch {torch.__version__}, CPU": way}


#: Of f(x) = x^3 + 2x^2 - 3x + 1 at 1: f, and its first four derivatives.
DERIVATIVES = (1.0, 4.0, 10.0, 6.0, 0.0)


def derivatives() -> tuple[float, ...]:
    """The same numbers, by `jax.grad` of `jax.grad` of ..."""

    def f(x: jax.Array) -> jax.Array:
        return x**3 + 2 * x**2 - 3 * x + 1

    values: list[float] = []
    of: Callable[[Any], jax.Array] = f
    for _ in DERIVATIVES:
        values.append(float(of(1.0)))
        of = jax.grad(of)
    return tuple(values)
