"""A plain Flax program: `train` trains, and `fit` is all that `tpujob fit plain_flax.py:fit` needs beside it."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, LAYERS, VOCAB, TOKENS, ROWS = 256, 2, 512, 128, 4


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.blocks = nnx.List(Block(rngs) for _ in range(LAYERS))

    def __call__(self, tokens: jax.Array, remat: bool) -> jax.Array:
        x = self.embed(tokens)
        for block in self.blocks:
            x = nnx.remat(lambda block, x: block(x))(block, x) if remat else block(x)
        return self.embed.attend(x)


def modules() -> tuple[Model, nnx.Optimizer[Model]]:
    model = Model(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)


GRAPH = nnx.split(nnx.eval_shape(modules))[0]


def train_step(
    state: nnx.State, tokens: jax.Array, remat: bool = False
) -> tuple[nnx.State, jax.Array]:
    model, optimizer = nnx.merge(GRAPH, state)

    def loss(model: Model) -> jax.Array:
        logits = model(tokens[:, :-1], remat)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return nnx.state((model, optimizer)), value


# The lines for tpujob fit --------------------------------------------------------------------------------------------


def fit(mesh, remat=False, donate=True):  # type: ignore[no-untyped-def]
    def placed(leaf):  # type: ignore[no-untyped-def]
        spec = P("fsdp") if leaf.ndim and leaf.shape[0] % mesh.shape["fsdp"] == 0 else P()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    state = jax.tree.map(placed, nnx.split(nnx.eval_shape(modules))[1])
    tokens = placed(jax.ShapeDtypeStruct((ROWS * mesh.size, TOKENS + 1), jnp.int32))
    step = jax.jit(train_step, donate_argnums=0 if donate else (), static_argnames="remat")
    return step, (state, tokens, remat), {"tokens": tokens.shape[0] * TOKENS}
