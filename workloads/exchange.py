"""What the devices exchange: averages over the `data` axis, in as few exchanges as there are layouts.

XLA would average each parameter's gradient in an exchange of its own. On CPU, where every exchange
costs each device a few ms of system calls, packing them took a third off a step of the small model.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

#: So small that what it is multiplied with cannot overflow in a sum; NaN and infinity stay what they are.
_SMALL = 1e-20


class Finite(NamedTuple):
    """Whether the leaves of a tree are finite, as far as each device can tell without asking others."""

    whole: jax.Array  #: the leaves that every device of the `tensor` axis has whole
    parts: jax.Array  #: [tensor]: those and, of the others, the part that each device has


def mean_over_data(tree: Any, shardings: Any) -> tuple[Any, Finite, Finite]:
    """The mean of each leaf over the devices of the `data` axis; call it under `shard_map` over that axis.

    `shardings` has the layout of each leaf: whole, or split over `tensor` along one dimension. Also returns
    whether our own leaves were finite, and whether those of all were.
    """
    leaves, structure = jax.tree.flatten(tree)
    layouts: list[NamedSharding] = jax.tree.leaves(shardings)
    along = _split_dimensions(layouts)
    parts = layouts[0].mesh.shape["tensor"]
    own, all_own = [jnp.zeros(()), jnp.zeros(parts)], [jnp.zeros(()), jnp.zeros(parts)]
    whole = [i for i in range(len(leaves)) if i not in along]
    if whole:
        packed = jnp.concatenate([leaves[i].ravel() for i in whole])
        own[0], all_own[0], packed = _mean_with_sum(packed)
        _unpack(leaves, whole, packed)
    if along:
        # with its split dimension first, cut into one row for each part, a leaf can be joined to others
        rows = [jnp.moveaxis(leaves[i], dimension, 0) for i, dimension in along.items()]
        packed = jnp.concatenate([row.reshape(parts, -1) for row in rows], axis=1)
        packed = jax.lax.with_sharding_constraint(packed, PartitionSpec("tensor", None))
        own[1], all_own[1], packed = _mean_with_sum(packed)
        _unpack(rows, range(len(rows)), packed)
        for (i, dimension), row in zip(along.items(), rows, strict=True):
            leaves[i] = jnp.moveaxis(row, 0, dimension)
    return jax.tree.unflatten(structure, leaves), _finite(*own), _finite(*all_own)


def finite(tree: Any, shardings: Any) -> Finite:
    """Whether the leaves are finite. Exchanges nothing."""
    leaves = jax.tree.leaves(tree)
    layouts: list[NamedSharding] = jax.tree.leaves(shardings)
    along = _split_dimensions(layouts)
    parts = layouts[0].mesh.shape["tensor"]
    sums = [jnp.zeros(()), jnp.zeros(parts)]
    for i, leaf in enumerate(leaves):
        if i in along:
            sums[1] += _sum(jnp.moveaxis(leaf, along[i], 0).reshape(parts, -1))
        else:
            sums[0] += _sum(leaf.ravel())
    return _finite(*sums)


def keep_unless(good: Finite, new: Any, old: Any, shardings: Any) -> Any:
    """Each leaf of `new`, or that of `old` where `good` does not hold. Exchanges nothing."""

    def kept(new: jax.Array, old: jax.Array, layout: NamedSharding) -> jax.Array:
        if not _is_split(layout):
            return jnp.where(good.whole, new, old)
        dimension = layout.spec.index("tensor")
        parts = jnp.repeat(good.parts, new.shape[dimension] // len(good.parts))
        beside = [1] * new.ndim
        beside[dimension] = -1
        return jnp.where(parts.reshape(beside), new, old)

    return jax.tree.map(kept, new, old, shardings)


def _mean_with_sum(packed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Our sum along the last axis, the mean of all such sums, and the mean of all `packed`: one exchange."""
    own = _sum(packed)
    mean = jax.lax.pmean(jnp.concatenate([packed, own[..., None]], axis=-1), "data")
    return own, mean[..., -1], mean[..., :-1]


def _sum(array: jax.Array) -> jax.Array:
    """Along the last axis, made small: finite if and only if all is. (As a product it is quicker than as a
    reduction: on CPU those are not vectorized.)"""
    return array @ jnp.full(array.shape[-1], _SMALL, dtype=array.dtype)


def _finite(whole: jax.Array, parts: jax.Array) -> Finite:
    both = jnp.isfinite(parts) & jnp.isfinite(whole)
    return Finite(both[0] if len(parts) == 1 else jnp.isfinite(whole), both)


def _split_dimensions(layouts: list[NamedSharding]) -> dict[int, int]:
    return {i: layout.spec.index("tensor") for i, layout in enumerate(layouts) if _is_split(layout)}


def _unpack(leaves: list[jax.Array], which: Iterable[int], packed: jax.Array) -> None:
    """Put what was packed along the last axis back into the leaves that it was made of."""
    start = 0
    for i in which:
        width = leaves[i].size // (packed.size // packed.shape[-1])
        leaves[i] = packed[..., start : start + width].reshape(leaves[i].shape)
        start += width


def _is_split(layout: NamedSharding) -> bool:
    return "tensor" in layout.spec
