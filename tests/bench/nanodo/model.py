"""nanodo's decoder as a workload of the frame: LayerNorm without biases, learned positions, GELU, the embedding as the
output layer, the residual stream and the logits in float32. What it computes is the same; how, is not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from pydantic import Field

from workloads.data.rows import Dataset, InMemory
from workloads.frame.config import TrainConfig
from workloads.frame.workload import Batch, ByRow, Watch, Workload

#: Queries that are taken at a time, with the keys up to them: what the mask hides beyond is never computed.
_BLOCK = 128


class NanoConfig(TrainConfig):
    """nanodo's names: D, H, L, N, F, V; the batch is B."""

    d: int = Field(256)
    h: int = Field(4)
    l: int = Field(256)  # noqa: E741
    n: int = Field(4)
    f: int = Field(1024)
    v: int = Field(8192)
    batch: int = Field(8)
    dtype: str = Field("bfloat16")


class Block(nnx.Module):
    def __init__(self, c: NanoConfig, rngs: nnx.Rngs) -> None:
        self.heads, self.dtype = c.h, c.dtype
        self.attention_norm, self.mlp_norm = _norm(c.d, rngs), _norm(c.d, rngs)
        self.q, self.k, self.v, self.out = (_weight(rngs, c.d, c.d) for _ in range(4))
        self.up, self.down = _weight(rngs, c.d, c.f), _weight(rngs, c.f, c.d)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = self.attention_norm(x).astype(self.dtype)
        # as three products: cutting the result of one costs more on a CPU
        each = (h @ self._as(weight) for weight in (self.q, self.k, self.v))
        q, k, v = (part.reshape(*h.shape[:2], self.heads, -1) for part in each)
        x = x + _attention(q, k, v) @ self._as(self.out)
        h = self.mlp_norm(x).astype(self.dtype)
        return x + nnx.gelu(h @ self._as(self.up)) @ self._as(self.down)

    def _as(self, weight: nnx.Param[jax.Array]) -> jax.Array:
        return weight[...].astype(self.dtype)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """[rows, tokens, heads, head] three times, to [rows, tokens, heads * head]."""
    q = q / np.sqrt(q.shape[-1]).astype(q.dtype)
    parts: list[jax.Array] = []
    for start in range(0, q.shape[1], _BLOCK):
        end = min(start + _BLOCK, q.shape[1])
        scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, start:end], k[:, :end]).astype(jnp.float32)
        mask = jnp.arange(start, end)[:, None] >= jnp.arange(end)
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1).astype(q.dtype)
        parts.append(jnp.einsum("bhqk,bkhd->bqhd", weights, v[:, :end]))
    return jnp.concatenate(parts, axis=1).reshape(*q.shape[:2], -1)


class Decoder(nnx.Module):
    def __init__(self, c: NanoConfig, rngs: nnx.Rngs) -> None:
        self.words, self.places = _table(rngs, c.v, c.d), _table(rngs, c.l, c.d)
        self.blocks = nnx.List(Block(c, rngs) for _ in range(c.n))
        self.norm, self.dtype = _norm(c.d, rngs), c.dtype

    def __call__(self, tokens: jax.Array, watch: Watch) -> jax.Array:
        """What the output layer is given: [rows, tokens, d]."""
        x = watch(self.words[...][tokens] + self.places[...][: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.norm(x).astype(self.dtype).astype(jnp.float32)


class NanoWorkload(Workload[NanoConfig]):
    """Random tokens, as only the time matters."""

    title = "nanodo's decoder on random tokens"

    def dataset(self) -> Dataset:
        rng = np.random.default_rng(0)
        rows = rng.integers(
            1, self.config.v, (4 * self.config.batch, self.config.l), dtype=np.int32
        )
        source = InMemory({"tokens": rows})
        return Dataset(source, source, self.config.v)

    def model(self, rngs: nnx.Rngs) -> Decoder:
        return Decoder(self.config, rngs)

    def loss(self, model: Decoder, batch: Batch, watch: Watch) -> ByRow:
        tokens = batch["tokens"]
        targets = jnp.pad(tokens[:, 1:], ((0, 0), (0, 1)))
        weights = (targets != 0).astype(jnp.float32)
        x = model(tokens, watch)
        losses = cross_entropy(x.reshape(-1, x.shape[-1]), model.words[...], targets.flatten())
        return ByRow((losses.reshape(targets.shape) * weights).sum(axis=1), weights.sum(axis=1))

    def metrics(self, model: Decoder, batch: Batch) -> dict[str, ByRow]:
        raise NotImplementedError

    def optimizer(self) -> optax.GradientTransformation:
        """nanodo's: AdamW without clipping, all arrays decay."""
        c = self.config
        schedule = optax.warmup_cosine_decay_schedule(0.1 * c.lr, c.lr, 1000, 100_000, 0.1 * c.lr)
        return optax.adamw(schedule, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.1)


@jax.custom_vjp
def cross_entropy(x: jax.Array, words: jax.Array, targets: jax.Array) -> jax.Array:
    """Of each token, float32: `x` [tokens, d], `words` [v, d], `targets` [tokens].

    By hand: XLA for CPU computes the gradient of `words` from a transposed copy of that of the logits, made element by
    element, which costs more than all else in the loss.
    """
    return _forward(x, words, targets)[0]


def _forward(x: jax.Array, words: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
    logits = x @ words.T
    total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    hit = jnp.take_along_axis(logits, targets[:, None], axis=-1)
    return (total - hit)[:, 0], (x, words, targets, logits, total)


def _backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    x, words, targets, logits, total = kept
    at_target = targets[:, None] == jnp.arange(words.shape[0])
    of_logits = (jnp.exp(logits - total) - at_target) * gradient[:, None]
    return of_logits @ words, (x.T @ of_logits).T, None


cross_entropy.defvjp(_forward, _backward)


def _norm(size: int, rngs: nnx.Rngs) -> nnx.LayerNorm:
    return nnx.LayerNorm(size, use_bias=False, rngs=rngs)


def _weight(rngs: nnx.Rngs, inputs: int, outputs: int) -> nnx.Param[Any]:
    init = nnx.initializers.xavier_uniform()
    return nnx.Param(init(rngs.params(), (inputs, outputs)))


def _table(rngs: nnx.Rngs, rows: int, size: int) -> nnx.Param[Any]:
    init = nnx.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)
    return nnx.Param(init(rngs.params(), (rows, size)))
