"""The measurements. Each returns figures; `report.py` judges them.

Two of them are bugs that a production system met on TPUs: a compiler may keep more precision than the program asked
for, and does so in one place and not in another; and an approximate top-k returned values that were not there.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]
Matmul = Callable[[Array, Array], Array]


#: The operands of a product: in the first each element is a sum of four products, in the second of d.
OUTER, INNER = "[d,4]x[4,d]", "[4,d]x[d,4]"


class ProductError(NamedTuple):
    """By how much a float32 product differs from the float64 product of the same numbers."""

    way: str
    shape: str  #: OUTER or INNER
    d: int
    largest: float  #: over all elements
    mean: float  #: of the absolute differences
    unequal: float  #: part of the elements that differ in some bit from the first way's


def product_errors(sizes: tuple[int, ...], seed: int) -> list[ProductError]:
    """Return the errors of both products, for each d, by each library."""
    rng = np.random.default_rng(seed)
    errors: list[ProductError] = []
    for d in sizes:
        thin, flat = rng.normal(size=(d, 4)), rng.normal(size=(4, d))
        for shape, a, b in ((OUTER, thin, flat), (INNER, flat, thin)):
            errors += _errors(shape, d, a.astype(np.float32), b.astype(np.float32))
    return errors


def _errors(shape: str, d: int, a: Array, b: Array) -> list[ProductError]:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    results = {way: matmul(a, b) for way, matmul in matmuls().items()}
    first = next(iter(results.values()))
    errors: list[ProductError] = []
    for way, result in results.items():
        off = np.abs(result.astype(np.float64) - exact)
        unequal = float(np.mean(result != first))
        errors.append(ProductError(way, shape, d, float(off.max()), float(off.mean()), unequal))
    return errors


def matmuls() -> dict[str, Matmul]:
    """The libraries' float32 products. JAX's default is bfloat16 on a TPU and TF32 on newer GPUs."""

    def by_jax(precision: str) -> Matmul:
        product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
        return lambda a, b: np.asarray(product(a, b))

    ways = {"NumPy": np.matmul, "JAX": by_jax("default"), "JAX highest": by_jax("highest")}
    try:
        import torch
    except ImportError:
        return ways
    name = f"PyTorch {torch.__version__}, CPU"
    return {**ways, name: lambda a, b: (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()}


def excess_precision(rows: int, vocabulary: int, seed: int, *, allowed: bool | None) -> float:
    """The part of rows in which the largest logit and the logit at the index of the largest are two numbers.

    Both come from one bfloat16 product in one program. If the compiler may keep float32 where the program says
    bfloat16 (`xla_allow_excess_precision`, on by default), it does so for one of them. None: the default.
    """
    rng = np.random.default_rng(seed)
    hidden = jnp.asarray(rng.normal(size=(rows, 64)), jnp.bfloat16)
    weights = jnp.asarray(rng.normal(size=(64, vocabulary)), jnp.bfloat16)

    def largest_twice(hidden: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = hidden @ weights
        at = jnp.argmax(logits, axis=-1)[:, None]
        gathered = jnp.take_along_axis(logits.astype(jnp.float32), at, axis=-1)[:, 0]
        return jnp.max(logits, axis=-1).astype(jnp.float32), gathered

    options = {} if allowed is None else {"xla_allow_excess_precision": allowed}
    largest, gathered = jax.jit(largest_twice, compiler_options=options)(hidden, weights)
    return float(np.mean(np.asarray(largest) != np.asarray(gathered)))


def rounded_away(seed: int, count: int = 4096) -> float:
    """The part of float32 numbers that `lax.reduce_precision` to bfloat16 leaves with bits that bfloat16 does not
    have, in a compiled chain of operations. It rounds whatever the compiler may do elsewhere: this is 0."""

    def chain(x: jax.Array) -> jax.Array:
        return jax.lax.reduce_precision(x * 1.1 + 0.3, exponent_bits=8, mantissa_bits=7)

    x = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    bits = np.asarray(jax.jit(chain)(x)).view(np.uint32)
    return float(np.mean((bits & 0xFFFF) != 0))


class TopK(NamedTuple):
    """The quality of a result of `lax.approx_max_k`."""

    recall: float  #: part of the true k largest that are among what it returned
    top_kept: bool  #: the largest is among them
    honest: bool  #: each value is the operand's at its index


def approximate_top_k(candidates: int, k: int, seed: int, recall_target: float = 0.95) -> TopK:
    """Return the quality of an approximate top-k of distinct numbers in random order."""
    operand = np.random.default_rng(seed).permutation(candidates).astype(np.float32)
    find = jax.jit(lambda x: jax.lax.approx_max_k(x, k, recall_target=recall_target))
    values, indices = (np.asarray(part) for part in find(operand))
    recall = float(np.mean(np.isin(np.arange(candidates - k, candidates), values)))
    return TopK(recall, candidates - 1 in values, bool(np.array_equal(values, operand[indices])))
