"""A batch in equal parts, which a step computes one after another to save memory."""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.frame.mesh import ROWS, row_parts


def cut(batch: Any, parts: int, mesh: Mesh) -> Any:
    """Return arrays [batch, ...] as [parts, rows of a part, ...]. Each unit's rows are cut: none changes its device."""
    units, split = row_parts(mesh), NamedSharding(mesh, PartitionSpec(None, ROWS))

    def one(rows: jax.Array) -> jax.Array:
        by_unit = rows.reshape(units, parts, -1, *rows.shape[1:]).swapaxes(0, 1)
        by_part = by_unit.reshape(parts, -1, *rows.shape[1:])
        return jax.lax.with_sharding_constraint(by_part, split)

    return jax.tree.map(one, batch)


def joined(parts: Any, mesh: Mesh) -> Any:
    """Return arrays [parts, rows of a part] as [batch], in the order that `cut` was given."""
    units, split = row_parts(mesh), NamedSharding(mesh, PartitionSpec(ROWS))

    def one(by_part: jax.Array) -> jax.Array:
        by_unit = by_part.reshape(by_part.shape[0], units, -1).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(by_unit.reshape(-1), split)

    return jax.tree.map(one, parts)


def each_part(body: Callable[[Any, Any], tuple[Any, Any]], carried: Any, parts: Any) -> Any:
    """Apply `body` to each part of arrays [parts, ...], as `jax.lax.scan` does. A single part needs no loop."""
    if jax.tree.leaves(parts)[0].shape[0] > 1:
        return jax.lax.scan(body, carried, parts)
    carried, results = body(carried, jax.tree.map(lambda part: part[0], parts))
    return carried, jax.tree.map(lambda result: result[None], results)
