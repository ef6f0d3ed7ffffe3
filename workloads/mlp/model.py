"""The multilayer perceptron: its layers, its loss, and which rows it has right."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from workloads import data, packed
from workloads.mlp import MlpConfig


class Mlp(nnx.Module):
    """Linear layers with ReLU between them, in pairs: the first of a pair is split over its outputs and
    the second over its inputs, so that a pair needs one exchange between the devices that share it."""

    def __init__(self, sizes: tuple[int, ...], rngs: nnx.Rngs) -> None:
        layers = len(sizes) - 1
        self.layers = nnx.List(
            _linear(sizes[i], sizes[i + 1], i, paired=i < layers // 2 * 2, rngs=rngs)
            for i in range(layers)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


def _linear(inputs: int, outputs: int, index: int, *, paired: bool, rngs: nnx.Rngs) -> nnx.Linear:
    if not paired:
        kernel, bias = (None, None), (None,)
    elif index % 2 == 0:
        kernel, bias = (None, "tensor"), ("tensor",)
    else:
        kernel, bias = ("tensor", None), (None,)
    return nnx.Linear(
        inputs,
        outputs,
        rngs=rngs,
        kernel_metadata={"out_sharding": kernel},
        bias_metadata={"out_sharding": bias},
    )


class MlpWorkload:
    """The perceptron on its data set, as the training loop sees it."""

    def __init__(self, config: MlpConfig) -> None:
        self._config = config

    @property
    def title(self) -> str:
        return (
            f"mlp {'-'.join(map(str, self.sizes))} on {self._config.data or self._config.dataset}"
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """From the inputs to the classes, which both follow the data set."""
        inputs = self._dataset.train.take(np.zeros(1, dtype=np.int64))["x"].shape[1]
        return (inputs, *self._config.hidden, self._dataset.classes)

    @property
    def split_sizes(self) -> tuple[int, ...]:
        return self.sizes[1:-1:2]

    def dataset(self) -> data.Dataset:
        return self._dataset

    def model(self, rngs: nnx.Rngs) -> Mlp:
        return Mlp(self.sizes, rngs)

    def losses(self, model: Mlp, rows: dict[str, jax.Array]) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(rows["x"]), rows["y"])

    def right(self, model: Mlp, rows: dict[str, jax.Array]) -> jax.Array:
        return jnp.argmax(model(rows["x"]), axis=-1) == rows["y"]

    @cached_property
    def _dataset(self) -> data.Dataset:
        if self._config.data:
            return packed.dataset(self._config.data)
        return data.digits() if self._config.dataset == "digits" else data.synthetic()
