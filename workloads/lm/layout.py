"""The layout of the model's arrays on the current mesh, by names of axes as for parameters."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from workloads.frame.mesh import ROWS, row_parts, spec_of


def placed(x: jax.Array, *names: str | tuple[str, ...] | None) -> jax.Array:
    """`x`, whose dimensions are split as these names say (`ROWS`, or what `frame.mesh.spec_of` knows), the others
    not at all. Without a mesh it stays as it is."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    by_name = spec_of([None if name == ROWS else name for name in names], x.shape, mesh)
    spec = [ROWS if name == ROWS else axis for name, axis in zip(names, by_name, strict=False)]
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


def groups() -> int:
    """Return the number of groups of devices with separate rows."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if mesh.empty else row_parts(mesh)


@jax.custom_vjp
def spread(table: jax.Array) -> jax.Array:
    """[vocab, dim] as [groups, vocab, dim]: a whole copy for each group of devices that has rows of its own.

    So each adds up its own gradient of its copy, over all uses of it, and the sum over the groups is made once.
    Without it XLA adds up over all devices at each use: for a table of 128,256 words that is a GB each time.
    """
    copies = jnp.broadcast_to(placed(table, "tensor", None), (groups(), *table.shape))
    return placed(copies, ROWS, "tensor", None)


def _spread(table: jax.Array) -> tuple[jax.Array, None]:
    return spread(table), None


def _summed(_: None, gradients: jax.Array) -> tuple[jax.Array]:
    """The sum over the groups, in the type that is computed in, as for all other weights; each device gets its own
    part of it."""
    zero = jnp.zeros((), gradients.dtype)
    return (placed(jax.lax.reduce(gradients, zero, jax.lax.add, (0,)), "vocab", "embed"),)


spread.defvjp(_spread, _summed)


@jax.custom_vjp
def looked_up(copies: jax.Array, tokens: jax.Array) -> jax.Array:
    """[rows, tokens, dim]: the rows of the table for these tokens, each from the copy of its own group. The gradient
    of a word is added up in float32, however often the word occurs. A token that the table lacks becomes NaN."""

    def own(copy: jax.Array, tokens: jax.Array) -> jax.Array:
        return copy.at[tokens].get(mode="fill", fill_value=jnp.nan)

    by_group = tokens.reshape(copies.shape[0], -1, tokens.shape[1])
    rows = jax.vmap(own)(copies, placed(by_group, ROWS))
    return placed(rows.reshape(*tokens.shape, -1), ROWS)


def _looked_up(copies: jax.Array, tokens: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return looked_up(copies, tokens), (tokens, copies)


def _added_up(residuals: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, None]:
    tokens, copies = residuals
    by_group = placed(tokens.reshape(copies.shape[0], -1), ROWS)
    rows = placed(gradient.reshape(*by_group.shape, -1), ROWS).astype(jnp.float32)
    nothing = placed(jnp.zeros(copies.shape, jnp.float32), ROWS, "tensor", None)
    added = jax.vmap(lambda sum, tokens, rows: sum.at[tokens].add(rows))(nothing, by_group, rows)
    return placed(added, ROWS, "tensor", None).astype(copies.dtype), None


looked_up.defvjp(_looked_up, _added_up)
