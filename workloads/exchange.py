"""What the devices exchange: averages over the `data` axis, in as few exchanges as there are layouts.

XLA would average each parameter's gradient in an exchange of its own. On CPU, where every exchange
costs each device a few ms of system calls, packing them took a third off a step of the small model.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


def mean_over_data(tree: Any, shardings: Any) -> Any:
    """The mean of each leaf over the devices of the `data` axis; call it under `shard_map` over that axis.

    `shardings` has the layout of each leaf: whole, or split over `tensor` along one dimension.
    """
    leaves, structure = jax.tree.flatten(tree)
    layouts: list[NamedSharding] = jax.tree.leaves(shardings)
    along = {
        i: layout.spec.index("tensor") for i, layout in enumerate(layouts) if _is_split(layout)
    }
    whole = [i for i in range(len(leaves)) if i not in along]
    if whole:
        packed = jnp.concatenate([leaves[i].ravel() for i in whole])
        _unpack(leaves, whole, jax.lax.pmean(packed, "data"))
    if along:
        # with its split dimension first, cut into one row for each part, a leaf can be joined to others
        parts = layouts[0].mesh.shape["tensor"]
        rows = [jnp.moveaxis(leaves[i], dimension, 0) for i, dimension in along.items()]
        packed = jnp.concatenate([row.reshape(parts, -1) for row in rows], axis=1)
        packed = jax.lax.with_sharding_constraint(packed, PartitionSpec("tensor", None))
        _unpack(rows, range(len(rows)), jax.lax.pmean(packed, "data"))
        for (i, dimension), row in zip(along.items(), rows, strict=True):
            leaves[i] = jnp.moveaxis(row, 0, dimension)
    return jax.tree.unflatten(structure, leaves)


def finite_by_part(tree: Any, shardings: Any, parts: int) -> jax.Array:
    """[parts]: whether what each part of the `tensor` axis has of the tree is finite. Exchanges nothing."""
    finite = jnp.ones(parts, dtype=bool)
    for leaf, layout in zip(jax.tree.leaves(tree), jax.tree.leaves(shardings), strict=True):
        if _is_split(layout):
            rows = jnp.moveaxis(leaf, layout.spec.index("tensor"), 0).reshape(parts, -1)
            finite &= jnp.isfinite(rows).all(axis=1)
        else:
            finite &= jnp.isfinite(leaf).all()
    return finite


def _unpack(leaves: list[jax.Array], which: Iterable[int], packed: jax.Array) -> None:
    """Put what was packed along the last axis back into the leaves that it was made of."""
    start = 0
    for i in which:
        width = leaves[i].size // (packed.size // packed.shape[-1])
        leaves[i] = packed[..., start : start + width].reshape(leaves[i].shape)
        start += width


def _is_split(layout: NamedSharding) -> bool:
    return "tensor" in layout.spec
