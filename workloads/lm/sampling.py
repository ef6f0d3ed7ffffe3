"""Text from a Llama, a token at a time. Keys and values of what is there are kept, so that each token is read once."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from workloads.lm.attention import masked
from workloads.lm.layout import looked_up
from workloads.lm.model import Llama, rope

#: Keys and values of each layer, [1, tokens, kv heads, head]; filled up to a place.
Cache = list[tuple[jax.Array, jax.Array]]


def generate(
    model: Llama,
    prompt: Sequence[int],
    count: int,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[int]:
    """So many tokens after the prompt, which has at least one. `temperature` 0 takes the likeliest token; `top_p`
    draws among the likeliest that together have this probability."""
    graph, weights = nnx.split(model)
    step = jax.jit(partial(_step, graph, temperature, top_p), donate_argnums=1)
    key = jax.random.key(seed)
    cache = empty(model, len(prompt) + count)
    place, tokens = 0, jnp.asarray(prompt, jnp.int32)
    for number in range(count):
        token, cache = step(weights, cache, tokens, place, jax.random.fold_in(key, number))
        yield int(token)
        place += len(tokens)
        tokens = token[None]


def empty(model: Llama, tokens: int) -> Cache:
    """Return an empty cache with room for that many tokens."""
    shape = model.shape
    nothing = (1, tokens, shape.kv_heads, shape.head)
    return [
        (jnp.zeros(nothing, model.dtype), jnp.zeros(nothing, model.dtype))
        for _ in range(shape.layers)
    ]


def read(
    model: Llama, cache: Cache, tokens: jax.Array, place: jax.Array | int
) -> tuple[jax.Array, Cache]:
    """Read `tokens` [tokens], of which the first is at `place`, behind what is in the cache. Returns the logits of the
    token after them, float32 [vocab], and the cache with their keys and values."""
    words, head = model.tables()
    places = place + jnp.arange(len(tokens))
    turn = rope(model.shape, places)
    x = looked_up(words, tokens[None])
    filled: Cache = []
    for layer, cached in zip(model.each_layer(), cache, strict=True):

        def attend(
            q: jax.Array, k: jax.Array, v: jax.Array, cached: tuple[jax.Array, jax.Array] = cached
        ) -> jax.Array:
            start = (0, place, 0, 0)
            keys, values = (
                jax.lax.dynamic_update_slice(old, new, start)
                for old, new in zip(cached, (k, v), strict=True)
            )
            filled.append((keys, values))
            return masked(q, keys, values, (places[:, None] >= jnp.arange(keys.shape[1]))[None])

        x = layer(x, turn, attend)
    last = model.norm(x)[0, -1]
    return jnp.einsum("d,vd->v", last, head[0], preferred_element_type=jnp.float32), filled


def draw(logits: jax.Array, temperature: float, top_p: float, key: jax.Array) -> jax.Array:
    """Draw one token, int32, by its probability."""
    if temperature == 0:
        return jnp.argmax(logits).astype(jnp.int32)
    order = jnp.argsort(-logits)
    likeliest = logits[order] / temperature
    before = jnp.cumsum(jax.nn.softmax(likeliest)) - jax.nn.softmax(likeliest)
    among = jnp.where((before < top_p) | (jnp.arange(len(order)) == 0), likeliest, -jnp.inf)
    return order[jax.random.categorical(key, among)].astype(jnp.int32)


def _step(
    graph: Any,
    temperature: float,
    top_p: float,
    weights: Any,
    cache: Cache,
    tokens: jax.Array,
    place: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, Cache]:
    logits, cache = read(nnx.merge(graph, weights), cache, tokens, place)
    return draw(logits, temperature, top_p, key), cache
