"""Llama 3 as a Flax module: RMSNorm, RoPE, attention with grouped heads, SwiGLU.

The weights are float32 and are cast where they are used. Their dimensions have the names of `frame/mesh.RULES`.
"""

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

#: (q, k, v) -> the attended values; shapes in `attention.py`.
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


class Norm(nnx.Module):
    """RMSNorm, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        self.scale = nnx.Param(jnp.ones(size), out_sharding=(None,))
        self._eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self._eps)
        return (x32 * inverse * self.scale[...]).astype(x.dtype)


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

    def __call__(self, x: jax.Array, turn: Turn, attend: Attend) -> jax.Array:
        """`x` [rows, tokens, dim]; `turn` is RoPE at the places of these tokens."""
        h = self.attention_norm(x)
        qkv = (h @ _as(self.qkv, h)).reshape(*h.shape[:2], *self._heads)
        q, k, v = turn(qkv[..., :-2, :]), turn(qkv[..., -2:-1, :])[..., 0, :], qkv[..., -1, :]
        attended = checkpoint_name(attend(q, k, v), "attention")
        x = x + attended.reshape(*h.shape[:2], -1) @ _as(self.out, h)
        h = self.ff_norm(x)
        return x + (jax.nn.silu(h @ _as(self.gate, h)) * (h @ _as(self.up, h))) @ _as(self.down, h)


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
        self, tokens: jax.Array, segments: jax.Array | None = None, watch: Watch = lambda x: x
    ) -> tuple[jax.Array, jax.Array]:
        """Return the activations [rows, tokens, dim] of tokens [rows, tokens], and the output layer that makes logits
        of them, `spread` over the devices that have rows of their own: [groups, vocab, dim]."""
        attend = attention(self._kind)
        turn = rope(self.shape, jnp.arange(tokens.shape[1]))
        words, head = self.tables()

        def layer(layer: Layer, x: jax.Array) -> jax.Array:
            return placed(layer(x, turn, lambda q, k, v: attend(q, k, v, segments)), ROWS)

        return self.norm(self._through(layer, watch(looked_up(words, tokens)))), head

    def tables(self) -> tuple[jax.Array, jax.Array]:
        """The embedding and the output layer, `spread`, in the type that is computed in."""
        words = spread(self.embedding[...].astype(self.dtype))
        return words, words if self.shape.tied else spread(self.head[...].astype(self.dtype))

    def each_layer(self) -> Iterator[Layer]:
        """The layers, the first one first."""
        if isinstance(self.layers, nnx.List):
            yield from self.layers
            return
        graph, weights = nnx.split(self.layers)
        for number in range(self.shape.layers):
            yield nnx.merge(graph, jax.tree.map(lambda w, n=number: w[n], weights))

    def _through(self, layer: Callable[[Layer, jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        """`x` through all layers, of which each keeps for its gradients what `remat` says."""
        stacked = not isinstance(self.layers, nnx.List)

        def call(graph: Any, weights: Any, x: jax.Array) -> jax.Array:
            return layer(nnx.merge(graph, weights), x)

        if self._remat != "none":
            # within a loop nothing can be taken from the forward pass by mistake
            call = jax.checkpoint(
                call, policy=_KEPT[self._remat], prevent_cse=not stacked, static_argnums=0
            )
        if not stacked:
            for block in self.layers:
                x = call(*nnx.split(block), x)
            return x
        graph, weights = nnx.split(self.layers)
        return jax.lax.scan(lambda x, w: (call(graph, w, x), None), x, weights)[0]


Turn = Callable[[jax.Array], jax.Array]


def rope(shape: Shape, places: jax.Array) -> Turn:
    """Turns pairs of numbers (i, i + head / 2) by angles that grow with the place: for heads
    [rows, tokens, ..., head] at `places` [tokens]."""
    angles = places[:, None] * frequencies(shape)
    cos, sin = jnp.cos(angles), jnp.sin(angles)

    def turn(x: jax.Array) -> jax.Array:
        middle = (1,) * (x.ndim - 3)
        c, s = (a.reshape(a.shape[0], *middle, a.shape[1]) for a in (cos, sin))
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        turned = jnp.concatenate([first * c - second * s, second * c + first * s], axis=-1)
        return turned.astype(x.dtype)

    return turn


def frequencies(shape: Shape) -> jax.Array:
    """[head / 2], in radians a token. With `rope_factor` the slow ones are slowed down as in Llama 3.1."""
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
