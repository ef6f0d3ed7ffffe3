"""The layers of a Vision Transformer (arXiv:2010.11929), with the norms in front of them."""

# Names of arrays end with their dimensions: B rows, S side of an image, C channels, P numbers of a patch, L patches and
# the token, D width, N heads, H numbers of a head, F hidden width.

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from workloads.frame.mesh import platform
from workloads.frame.workload import Watch
from workloads.vit import VitConfig


class Vit(nnx.Module):
    """From images to the scores of their classes."""

    def __init__(self, config: VitConfig, classes: int, rngs: nnx.Rngs) -> None:
        self._config = config
        self._dtype = jnp.dtype(config.dtype)
        side = config.size // config.patch
        inputs = config.patch**2 * config.channels
        self.embed = _linear(config, inputs, config.dim, (None, "embed"), rngs)
        if config.positions == "learned":
            first = nnx.initializers.normal(1 / np.sqrt(config.dim))
            self.positions = nnx.Param(
                first(rngs.params(), (side * side, config.dim)), out_sharding=(None, "embed")
            )
        if config.pooling == "token":
            self.token = nnx.Param(jnp.zeros((1, config.dim)), out_sharding=(None, "embed"))
        skipped = np.linspace(0, config.drop_path, config.depth)
        self.layers = nnx.List(_Layer(config, float(part), rngs) for part in skipped)
        self.norm = _norm(config, rngs)
        self.dropout = _dropout(config.dropout, (), rngs)
        self.head = nnx.Linear(
            config.dim,
            classes,
            kernel_init=nnx.initializers.zeros,
            kernel_metadata={"out_sharding": ("embed", "vocab")},
            bias_metadata={"out_sharding": ("vocab",)},
            rngs=rngs,
        )

    def __call__(self, images_BSSC: jax.Array, watch: Watch = lambda x_BLD: x_BLD) -> jax.Array:
        """Return the scores of the classes, float32, of images in uint8."""
        patches_BLP = _patches(images_BSSC, self._config.patch)
        x_BLD = self.embed(patches_BLP.astype(self._dtype) / 127.5 - 1)
        x_BLD = x_BLD + self._places().astype(self._dtype)
        if self._config.pooling == "token":
            token_1D = self.token[...].astype(self._dtype)
            token_B1D = jnp.broadcast_to(token_1D, (len(x_BLD), *token_1D.shape))
            x_BLD = jnp.concatenate([token_B1D, x_BLD], axis=1)
        x_BLD = watch(self.dropout(x_BLD))
        for layer in self.layers:
            x_BLD = layer(x_BLD)
        x_BLD = self.norm(x_BLD)
        x_BD = x_BLD[:, 0] if self._config.pooling == "token" else x_BLD.mean(axis=1)
        return self.head(x_BD.astype(jnp.float32))

    def _places(self) -> jax.Array:
        if self._config.positions == "learned":
            return self.positions[...]
        return jnp.asarray(_waves(self._config.size // self._config.patch, self._config.dim))


class _Layer(nnx.Module):
    """Attention between the patches of an image, then an MLP for each; both are added to what they were given."""

    def __init__(self, config: VitConfig, skipped: float, rngs: nnx.Rngs) -> None:
        head = config.dim // config.heads
        heads = (config.heads, head)
        self.attention_norm = _norm(config, rngs)
        self.mix = nnx.LinearGeneral(
            config.dim,
            (3, *heads),
            kernel_metadata={"out_sharding": ("embed", None, "heads", None)},
            bias_metadata={"out_sharding": (None, "heads", None)},
            **_common(config, rngs),
        )
        self.out = nnx.LinearGeneral(
            heads,
            config.dim,
            axis=(-2, -1),
            kernel_metadata={"out_sharding": ("heads", None, "embed")},
            bias_metadata={"out_sharding": ("embed",)},
            **_common(config, rngs),
        )
        self.mlp_norm = _norm(config, rngs)
        self.up = _linear(config, config.dim, config.mlp, ("embed", "mlp"), rngs)
        self.down = _linear(config, config.mlp, config.dim, ("mlp", "embed"), rngs)
        self.dropout = _dropout(config.dropout, (), rngs)
        #: Of a row, all of what a part of the layer adds, or nothing (arXiv:1603.09382).
        self.skip = _dropout(skipped, (1, 2), rngs)

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        q_BLNH, k_BLNH, v_BLNH = jnp.moveaxis(self.mix(self.attention_norm(x_BLD)), -3, 0)
        kernel: Any = attention_kernel(q_BLNH.dtype, q_BLNH.shape[-1])
        att_BLNH = jax.nn.dot_product_attention(q_BLNH, k_BLNH, v_BLNH, implementation=kernel)
        x_BLD = x_BLD + self.skip(self.dropout(self.out(att_BLNH)))
        y_BLF = self.dropout(nnx.gelu(self.up(self.mlp_norm(x_BLD))))
        return x_BLD + self.skip(self.dropout(self.down(y_BLF)))


def attention_kernel(dtype: Any, head: int) -> str | None:
    """cuDNN's on a GPU of the mesh in force, which knows 16-bit types and multiples of 8 only; None: XLA's own."""
    fits = jnp.dtype(dtype).itemsize == 2 and head % 8 == 0
    return "cudnn" if fits and platform() == "gpu" else None


def _linear(
    config: VitConfig, inputs: int, outputs: int, names: tuple[str | None, ...], rngs: nnx.Rngs
) -> nnx.Linear:
    """A linear layer whose kernel has dimensions of these names, and its bias one of the last."""
    return nnx.Linear(
        inputs,
        outputs,
        kernel_metadata={"out_sharding": names},
        bias_metadata={"out_sharding": names[-1:]},
        **_common(config, rngs),
    )


def _common(config: VitConfig, rngs: nnx.Rngs) -> dict[str, Any]:
    first = nnx.initializers.xavier_uniform()
    return {"dtype": jnp.dtype(config.dtype), "kernel_init": first, "rngs": rngs}


def _dropout(rate: float, whole: tuple[int, ...], rngs: nnx.Rngs) -> nnx.Dropout:
    """Drops all or nothing along the dimensions `whole`. One that drops nothing keeps no random state."""
    return nnx.Dropout(rate, broadcast_dims=whole, rngs=rngs if rate else None)


def _norm(config: VitConfig, rngs: nnx.Rngs) -> nnx.LayerNorm:
    return nnx.LayerNorm(config.dim, epsilon=1e-6, dtype=jnp.dtype(config.dtype), rngs=rngs)


def _patches(images_BSSC: jax.Array, patch: int) -> jax.Array:
    """patches_BLP, from left to right and from top to bottom."""
    rows, side, _, channels = images_BSSC.shape
    count = side // patch
    cut = images_BSSC.reshape(rows, count, patch, count, patch, channels)
    return cut.swapaxes(2, 3).reshape(rows, count * count, patch * patch * channels)


def _waves(side: int, dim: int) -> np.ndarray[Any, Any]:
    """waves_LD: sines and cosines of the row and the column, of wavelengths from 2 pi to 20,000 pi
    (arXiv:2104.02057, section 4; the wavelengths are those of arXiv:1706.03762)."""
    row, column = np.divmod(np.arange(side * side)[:, None], side)
    speed = 10_000.0 ** -(np.arange(dim // 4) / max(dim // 4 - 1, 1))
    angles = (column * speed, row * speed)
    return np.concatenate([wave(a) for a in angles for wave in (np.sin, np.cos)], axis=1)
