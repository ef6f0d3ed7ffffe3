"""The output layer and the cross-entropy in one, without ever holding all logits.

The logits of 16,384 tokens over 128,256 words are 8.4 GB in float32. Here those of some tokens exist at a time, and
what follows from them for the gradients is computed while they are at hand, so that nothing is computed twice.

Each group of devices adds up the gradient of its own copy of the output layer (`layout.spread`) over all chunks: within
them nothing goes between devices.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from workloads.frame.mesh import ROWS
from workloads.frame.parts import each_part
from workloads.lm.layout import placed

#: Activations, targets and counts of a chunk: [groups, tokens, ...].
_Chunk = tuple[jax.Array, jax.Array, jax.Array]


def cross_entropy(
    x: jax.Array,
    copies: jax.Array,
    targets: jax.Array,
    counts: jax.Array,
    *,
    chunk: int = 0,
    z_loss: float = 0.0,
) -> jax.Array:
    """Return the summed loss of each row's tokens, float32 [rows]: -log of the target's probability, plus `z_loss`
    times the squared log of the softmax's denominator.

    `x` [rows, tokens, dim]; `copies` [groups, vocab, dim]: the output layer, `spread`, in the type of `x`; `targets`
    [rows, tokens]; `counts` [rows, tokens] is 1 for a token whose loss counts, else 0. `chunk`: tokens of a device
    that have logits at one time; 0: all.

    All rows must have the same part in what is differentiated, as they have in a sum and in a mean over the batch:
    the gradients of `copies` are NaN otherwise.
    """
    return _summed(x, copies, targets, counts, chunk, z_loss)


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _summed(
    x: jax.Array,
    copies: jax.Array,
    targets: jax.Array,
    counts: jax.Array,
    chunk: int,
    z_loss: float,
) -> jax.Array:
    def one(_: None, part: _Chunk) -> tuple[None, jax.Array]:
        return None, _losses(part, copies, z_loss)[0]

    _, losses = each_part(one, None, _chunks(copies.shape[0], chunk, x, targets, counts))
    return _joined(losses, targets).sum(axis=1)


def _forward(
    x: jax.Array,
    copies: jax.Array,
    targets: jax.Array,
    counts: jax.Array,
    chunk: int,
    z_loss: float,
) -> tuple[jax.Array, Any]:
    def one(of_copies: jax.Array, part: _Chunk) -> tuple[jax.Array, Any]:
        losses, of_logits = _losses(part, copies, z_loss)
        of_x = jnp.einsum("gtv,gvd->gtd", of_logits, copies)
        of_copies += jnp.einsum(
            "gtv,gtd->gvd", of_logits, part[0], preferred_element_type=jnp.float32
        )
        return placed(of_copies, ROWS, "tensor", None), (losses, of_x)

    nothing = placed(jnp.zeros(copies.shape, jnp.float32), ROWS, "tensor", None)
    parts = _chunks(copies.shape[0], chunk, x, targets, counts)
    of_copies, (losses, of_x) = each_part(one, nothing, parts)
    gradients = _joined(of_x, targets), of_copies.astype(copies.dtype)
    return _joined(losses, targets).sum(axis=1), gradients


def _backward(
    chunk: int, z_loss: float, gradients: tuple[jax.Array, jax.Array], of_rows: jax.Array
) -> tuple[jax.Array, jax.Array, None, None]:
    del chunk, z_loss
    of_x, of_copies = gradients
    same = jnp.where((of_rows == of_rows[0]).all(), of_rows[0], jnp.nan)
    by_row = of_rows[:, None, None].astype(of_x.dtype)
    return of_x * by_row, of_copies * same.astype(of_copies.dtype), None, None


_summed.defvjp(_forward, _backward)


def _losses(part: _Chunk, copies: jax.Array, z_loss: float) -> tuple[jax.Array, jax.Array]:
    """The losses of a chunk's tokens, and the gradients of their logits, in the type of `copies`."""
    x, targets, counts = part
    logits = jnp.einsum("gtd,gvd->gtv", x, copies, preferred_element_type=jnp.float32)
    total = jax.nn.logsumexp(logits, axis=-1)
    is_target = targets[..., None] == jnp.arange(copies.shape[1])
    hit = jnp.sum(jnp.where(is_target, logits, 0), axis=-1)
    hit = jnp.where(targets < copies.shape[1], hit, jnp.nan)  # a target that is no word
    probability = jnp.exp(logits - total[..., None])
    of_logits = probability * (1 + 2 * z_loss * total)[..., None] - is_target
    losses = (total - hit + z_loss * total**2) * counts
    return losses, (of_logits * counts[..., None]).astype(copies.dtype)


def _chunks(groups: int, chunk: int, x: jax.Array, targets: jax.Array, counts: jax.Array) -> _Chunk:
    """Return each array as [chunks, groups, tokens, ...]; the last chunk is padded with tokens that do not count."""
    tokens = targets.size // groups
    size = min(chunk or tokens, tokens)
    missing = -tokens % size

    def cut(array: jax.Array) -> jax.Array:
        rest = array.shape[2:]
        pieces = array.reshape(groups, tokens, *rest)
        pieces = jnp.pad(pieces, ((0, 0), (0, missing), *((0, 0) for _ in rest)))
        pieces = pieces.reshape(groups, -1, size, *rest)
        return placed(pieces.swapaxes(0, 1), None, ROWS)

    return cut(x), cut(targets), cut(counts)


def _joined(parts: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the results of the chunks, [chunks, groups, tokens, ...], as [rows, tokens, ...] of the batch."""
    parts = parts.swapaxes(0, 1)
    groups, rest = parts.shape[0], parts.shape[3:]
    flat = parts.reshape(groups, -1, *rest)[:, : targets.size // groups]
    return placed(flat.reshape(*targets.shape, *rest), ROWS)
