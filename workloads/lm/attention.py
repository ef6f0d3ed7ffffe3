"""Causal attention with grouped heads, in the way that is fastest where it runs. All ways compute the same.

Shapes: `q` [rows, tokens, kv heads, group, head], `k` and `v` [rows, tokens, kv heads, head]; query head g of kv head n
is head n * group + g of the model. `segments` [rows, tokens] numbers the documents of a row: a token attends to tokens
of its own document only. None: a row is one document.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from workloads.frame.mesh import ROWS, platform

#: Queries that `blocks` takes at a time: the fewer, the less is computed that the mask then hides. Measured on CPU.
_BLOCK = 128
#: Of the kernels for TPU: sides of the tiles, the largest that divides the sequence.
_TILES = (1024, 512, 256, 128)

Attention = Callable[[jax.Array, jax.Array, jax.Array, jax.Array | None], jax.Array]


def attention(kind: str) -> Attention:
    """Return the function of that name; `auto`: the best for the devices of the current mesh."""
    return _KINDS[_BEST.get(platform(), "plain") if kind == "auto" else kind]


def plain(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Compute attention by its definition: all scores at once, in float32."""
    places = jnp.arange(q.shape[1])
    mask = places[:, None] >= places
    if segments is not None:
        mask = mask & (segments[:, :, None] == segments[:, None, :])
    return masked(q, k, v, jnp.broadcast_to(mask, (q.shape[0], *mask.shape[-2:])))


def masked(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    """Attention where `mask` [rows, queries, keys] holds; each query has a key."""
    scores = jnp.einsum("bqngh,bknh->bngqk", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None], scores * q.shape[-1] ** -0.5, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return jnp.einsum("bngqk,bknh->bqngh", weights, v)


def blocks(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Some queries at a time, with the keys up to them: half of the scores are never computed."""
    parts: list[jax.Array] = []
    for start in range(0, q.shape[1], _BLOCK):
        end = min(start + _BLOCK, q.shape[1])
        mask = jnp.arange(start, end)[:, None] >= jnp.arange(end)
        if segments is not None:
            mask = mask & (segments[:, start:end, None] == segments[:, None, :end])
        mask = jnp.broadcast_to(mask, (q.shape[0], *mask.shape[-2:]))
        parts.append(masked(q[:, start:end], k[:, :end], v[:, :end], mask))
    return jnp.concatenate(parts, axis=1)


def cudnn(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None) -> jax.Array:
    """cuDNN's fused attention. It knows 16-bit types and multiples of 8 only; others are computed plainly."""
    rows, tokens, kv_heads, group, head = q.shape
    if q.dtype not in (jnp.bfloat16, jnp.float16) or head % 8:
        return plain(q, k, v, segments)
    mask = None if segments is None else (segments[:, None, :, None] == segments[:, None, None, :])
    flat = q.reshape(rows, tokens, kv_heads * group, head)
    attended = jax.nn.dot_product_attention(
        flat, k, v, mask=mask, is_causal=True, implementation="cudnn"
    )
    return attended.reshape(q.shape)


def splash(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segments: jax.Array | None,
    *,
    interpret: bool = False,
) -> jax.Array:
    """JAX's kernel for TPU, on each device's own rows and heads. It wants multiples of 128 tokens; other sequences
    are computed plainly. `interpret`: on CPU, for tests."""
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    rows, tokens, kv_heads, group, head = q.shape
    tile = next((size for size in _TILES if tokens % size == 0), 0)
    if not tile:
        return plain(q, k, v, segments)
    sizes = kernels.BlockSizes(
        block_q=tile,
        block_kv=tile,
        block_kv_compute=min(tile, 512),
        block_q_dkv=tile,
        block_kv_dkv=tile,
        block_kv_dkv_compute=min(tile, 512),
        use_fused_bwd_kernel=True,
    )

    def own(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array | None) -> jax.Array:
        kernel = kernels.make_splash_mha(
            kernels.MultiHeadMask([kernels.CausalMask((tokens, tokens))] * q.shape[1]),
            block_sizes=sizes,
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )
        ids = None if segments is None else kernels.SegmentIds(segments, segments)
        return jax.vmap(kernel)(q, k, v, ids)

    by_head = PartitionSpec(ROWS, "tensor", None, None)
    by_row = None if segments is None else PartitionSpec(ROWS, None)
    flat = q.reshape(rows, tokens, kv_heads * group, head) * head**-0.5
    attended = jax.shard_map(
        own, in_specs=(by_head, by_head, by_head, by_row), out_specs=by_head, check_vma=False
    )(*(x.swapaxes(1, 2) for x in (flat, k, v)), segments)
    return attended.swapaxes(1, 2).reshape(q.shape)


_KINDS: dict[str, Any] = {
    "plain": plain,
    "blocks": blocks,
    "cudnn": cudnn,
    "splash": splash,
}
#: By the platform of a device.
_BEST = {"tpu": "splash", "gpu": "cudnn", "cpu": "blocks"}
