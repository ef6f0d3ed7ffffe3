"""Llama 3 as a Flax module: RMSNorm, RoPE, attention with grouped heads, SwiGLU.

The weights are float32 and are cast where they are used. Their dimensions have the names of `frame/mesh.RULES`.
"""

# Names of arrays end with their dimensions: B rows, L tokens of a row, D width, K heads of keys and values, G heads of
# queries for each of those, H numbers of a head, F hidden width, V words, N groups of devices with rows of their own.

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from workloads.frame.mesh import ROWS
from workloads.frame.workload import Watch
from workloads.lm.attention import attention
from workloads.lm.layout import looked_up, placed, spread
from workloads.lm.presets import Shape

#: Llama 3.1: wavelengths shorter than 1/4 of the original context stay, those longer than it are made longer.
_LOW_FREQUENCY, _HIGH_FREQUENCY = 1.0, 4.0

_policies = jax.checkpoint_policies
#: What is kept of a layer for its gradients. `none` is not here: it keeps everything.
_KEPT = {
    "dots": _policies.save_from_both_policies(
        _policies.dots_with_no_batch_dims_saveable, _policies.save_only_these_names("attention")
    ),
    "full": _policies.nothing_saveable,
}

#: (q_BLKGH, k_BLKH, v_BLKH) -> the attended values, att_BLKGH.
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


class Norm(nnx.Module):
    """RMSNorm, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        self.scale = nnx.Param(jnp.ones(size), out_sharding=(None,))
        self._eps = eps

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        x32_BLD = x_BLD.astype(jnp.float32)
        mean_BL1 = jnp.mean(x32_BLD * x32_BLD, axis=-1, keepdims=True)
        return (x32_BLD * jax.lax.rsqrt(mean_BL1 + self._eps) * self.scale[...]).astype(x_BLD.dtype)


class Layer(nnx.Module):
    """Attention, then the feed-forward part, each behind a norm and added to its input.

    `qkv` has for each kv head the columns of its query heads, then those of its key, then of its value: so one
    product makes all three, and the split over `tensor` falls between kv heads."""

    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        dim, kv_heads, head = shape.dim, shape.kv_heads, shape.head
        self._heads = (kv_heads, shape.heads // kv_heads + 2, head)
        last = 0.02 / math.sqrt(2 * shape.layers)
        self.attention_norm = Norm(dim, shape.norm_eps)
        self.qkv = _weight(rngs, (dim, math.prod(self._heads)), ("embed", "heads"))
        self.out = _weight(rngs, (shape.heads * head, dim), ("heads", "embed"), last)
        self.ff_norm = Norm(dim, shape.norm_eps)
        self.gate = _weight(rngs, (dim, shape.ff), ("embed", "mlp"))
        self.up = _weight(rngs, (dim, shape.ff), ("embed", "mlp"))
        self.down = _weight(rngs, (shape.ff, dim), ("mlp", "embed"), last)

    def __call__(self, x_BLD: jax.Array, turn: Turn, attend: Attend) -> jax.Array:
        """`turn` is RoPE at the places of these tokens."""
        y_BLD = self.attention_norm(x_BLD)
        qkv_BLKJH = (y_BLD @ _as(self.qkv, y_BLD)).reshape(
            *y_BLD.shape[:2], *self._heads
        )  # J = G + 2
        q_BLKGH, k_BLKH = turn(qkv_BLKJH[..., :-2, :]), turn(qkv_BLKJH[..., -2:-1, :])[..., 0, :]
        att_BLKGH = checkpoint_name(attend(q_BLKGH, k_BLKH, qkv_BLKJH[..., -1, :]), "attention")
        x_BLD = x_BLD + att_BLKGH.reshape(*y_BLD.shape[:2], -1) @ _as(self.out, y_BLD)
        y_BLD = self.ff_norm(x_BLD)
        y_BLF = jax.nn.silu(y_BLD @ _as(self.gate, y_BLD)) * (y_BLD @ _as(self.up, y_BLD))
        return x_BLD + y_BLF @ _as(self.down, y_BLD)


class Llama(nnx.Module):
    """The model from tokens to the input of the output layer."""

    def __init__(
        self,
        shape: Shape,
        rngs: nnx.Rngs,
        *,
        dtype: str = "float32",
        stacked: bool = False,
        remat: str = "none",
        kind: str = "auto",
    ) -> None:
        self.shape, self.dtype, self._remat, self._kind = shape, dtype, remat, kind
        self.embedding = _weight(rngs, (shape.vocab, shape.dim), ("vocab", "embed"))
        self.layers = _stacked(shape, rngs) if stacked else _listed(shape, rngs)
        self.norm = Norm(shape.dim, shape.norm_eps)
        if not shape.tied:
            self.head = _weight(rngs, (shape.vocab, shape.dim), ("vocab", "embed"))

    def __call__(
        self,
        tokens_BL: jax.Array,
        segments_BL: jax.Array | None = None,
        watch: Watch = lambda x_BLD: x_BLD,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the activations of the tokens, x_BLD, and the output layer that makes logits of them, head_NVD."""
        attend = attention(self._kind)
        turn = rope(self.shape, jnp.arange(tokens_BL.shape[1]))
        words_NVD, head_NVD = self.tables()

        def layer(layer: Layer, x_BLD: jax.Array) -> jax.Array:
            y_BLD = layer(x_BLD, turn, lambda q, k, v: attend(q, k, v, segments_BL))
            return placed(y_BLD, ROWS)

        x_BLD = watch(looked_up(words_NVD, tokens_BL))
        return self.norm(self._through(layer, x_BLD)), head_NVD

    def tables(self) -> tuple[jax.Array, jax.Array]:
        """The embedding and the output layer, `spread`, in the type that is computed in."""
        words_NVD = spread(self.embedding[...].astype(self.dtype))
        if self.shape.tied:
            return words_NVD, words_NVD
        return words_NVD, spread(self.head[...].astype(self.dtype))

    def each_layer(self) -> Iterator[Layer]:
        """The layers, the first one first."""
        if isinstance(self.layers, nnx.List):
            yield from self.layers
            return
        graph, weights = nnx.split(self.layers)
        for number in range(self.shape.layers):
            yield nnx.merge(graph, jax.tree.map(lambda w, n=number: w[n], weights))

    def _through(
        self, layer: Callable[[Layer, jax.Array], jax.Array], x_BLD: jax.Array
    ) -> jax.Array:
        """`x_BLD` through all layers, of which each keeps for its gradients what `remat` says."""
        stacked = not isinstance(self.layers, nnx.List)

        def call(graph: Any, weights: Any, x_BLD: jax.Array) -> jax.Array:
            return layer(nnx.merge(graph, weights), x_BLD)

        if self._remat != "none":
            # within a loop nothing can be taken from the forward pass by mistake
            call = jax.checkpoint(
                call, policy=_KEPT[self._remat], prevent_cse=not stacked, static_argnums=0
            )
        if not stacked:
            for block in self.layers:
                x_BLD = call(*nnx.split(block), x_BLD)
            return x_BLD
        graph, weights = nnx.split(self.layers)
        return jax.lax.scan(lambda x_BLD, w: (call(graph, w, x_BLD), None), x_BLD, weights)[0]


Turn = Callable[[jax.Array], jax.Array]


def rope(shape: Shape, places_L: jax.Array) -> Turn:
    """Turns pairs of numbers (i, i + H / 2) of heads, x_BLKGH, by angles that grow with the place."""
    angles_L11I = (places_L[:, None] * frequencies(shape))[:, None, None]  # I = H / 2
    cos_L11I, sin_L11I = jnp.cos(angles_L11I), jnp.sin(angles_L11I)

    def turn(x_BLKGH: jax.Array) -> jax.Array:
        a_BLKGI, b_BLKGI = jnp.split(x_BLKGH.astype(jnp.float32), 2, axis=-1)
        a = a_BLKGI * cos_L11I - b_BLKGI * sin_L11I
        b = b_BLKGI * cos_L11I + a_BLKGI * sin_L11I
        return jnp.concatenate([a, b], axis=-1).astype(x_BLKGH.dtype)

    return turn


def frequencies(shape: Shape) -> jax.Array:
    """[H / 2], in radians a token. With `rope_factor` the slow ones are slowed down as in Llama 3.1."""
    plain = shape.rope_theta ** (-jnp.arange(0, shape.head, 2) / shape.head)
    turns = shape.rope_original * plain / (2 * jnp.pi)  # in the original context
    smooth = jnp.clip((turns - _LOW_FREQUENCY) / (_HIGH_FREQUENCY - _LOW_FREQUENCY), 0, 1)
    return plain * (smooth + (1 - smooth) / shape.rope_factor)


def _weight(
    rngs: nnx.Rngs, sizes: tuple[int, ...], names: tuple[str | None, ...], deviation: float = 0.02
) -> nnx.Param[jax.Array]:
    return nnx.Param(deviation * jax.random.normal(rngs.params(), sizes), out_sharding=names)


def _as(weight: nnx.Param[jax.Array], like: jax.Array) -> jax.Array:
    return weight[...].astype(like.dtype)


def _listed(shape: Shape, rngs: nnx.Rngs) -> nnx.List[Layer]:
    return nnx.List(Layer(shape, rngs) for _ in range(shape.layers))


def _stacked(shape: Shape, rngs: nnx.Rngs) -> Layer:
    """One layer whose weights have a further first dimension, which is not split."""
    split = nnx.split_rngs(splits=shape.layers)
    return split(nnx.vmap(partial(Layer, shape), transform_metadata={nnx.PARTITION_NAME: None}))(
        rngs
    )
