"""Tokens drawn from a Llama."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from workloads.lm.model import Llama
from workloads.lm.presets import Shape
from workloads.lm.sampling import draw, empty, generate, read

SHAPE = Shape(vocab=64, layers=2, dim=32, heads=4, kv_heads=2, ff=48)
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def model(*, stacked: bool = False) -> Llama:
    with nnx.use_eager_sharding(False):
        graph, weights = nnx.split(
            nnx.eval_shape(lambda: Llama(SHAPE, nnx.Rngs(0), stacked=stacked))
        )
        made = quick(lambda: nnx.state(Llama(SHAPE, nnx.Rngs(0), stacked=stacked)))()
    del weights
    return nnx.merge(graph, jax.tree.map(lambda a: 10 * a, made))


@pytest.mark.slow
def test_reading_piece_by_piece_gives_the_logits_of_reading_all_at_once() -> None:
    tokens = jnp.arange(12) * 5 % 64
    graph, weights = nnx.split(model())

    def whole(weights: nnx.State) -> jax.Array:
        x, head = nnx.merge(graph, weights)(tokens[None])
        return x[0, -1] @ head[0].T

    def pieces(weights: nnx.State) -> jax.Array:
        reader = nnx.merge(graph, weights)
        _, cache = read(reader, empty(reader, 16), tokens[:7], 0)
        _, cache = read(reader, cache, tokens[7:11], 7)
        return read(reader, cache, tokens[11:], 11)[0]

    expected = np.asarray(quick(whole)(weights))
    assert np.abs(expected).max() > 1
    assert np.abs(quick(pieces)(weights) - expected).max() < 1e-4


@pytest.mark.slow
def test_the_same_seed_draws_the_same_tokens() -> None:
    sampler = model(stacked=True)
    first, again, other = (
        list(generate(sampler, [1, 2, 3], 6, temperature=3.0, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert all(0 <= token < SHAPE.vocab for token in first)


def test_top_p_draws_among_the_likeliest_only_and_by_their_probability() -> None:
    probabilities = jnp.array([0.1, 0.5, 0.3, 0.06, 0.04])
    keys = jax.random.split(jax.random.key(0), 4000)

    def shares(temperature: float, top_p: float) -> np.ndarray:
        drawn = jax.vmap(lambda key: draw(jnp.log(probabilities), temperature, top_p, key))(keys)
        return np.bincount(np.asarray(drawn), minlength=5) / len(keys)

    assert np.abs(shares(1.0, 1.0) - probabilities).max() < 0.03
    assert np.abs(shares(1.0, 0.7) - np.array([0, 5 / 8, 3 / 8, 0, 0])).max() < 0.03
    assert (shares(1.0, 0.01) == [0, 1, 0, 0, 0]).all(), "one token is always among them"
    assert (shares(0.0, 1.0) == [0, 1, 0, 0, 0]).all()
    assert shares(0.5, 1.0)[1] > 0.65
