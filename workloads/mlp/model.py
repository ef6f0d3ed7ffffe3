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

from workloads.data import packed
from workloads.data.bundled import digits, synthetic
from workloads.data.places import data_place
from workloads.data.rows import Dataset
from workloads.frame.workload import Batch, ByRow, Watch, Workload
from workloads.mlp import MlpConfig


class Mlp(nnx.Module):
    """Linear layers with ReLU between them, in pairs: the first of a pair is split over its outputs and
    the second over its inputs, so that a pair needs one exchange between the devices that share it."""

    def __init__(self, sizes: tuple[int, ...], rngs: nnx.Rngs) -> None:
        self.layers = nnx.List(
            _linear(sizes[i], sizes[i + 1], first=i % 2 == 0, rngs=rngs)
            for i in range(len(sizes) - 1)
        )

    def __call__(self, x: jax.Array, watch: Watch = lambda x: x) -> jax.Array:
        for i, layer in enumerate(self.layers[:-1]):
            x = nnx.relu(watch(layer(x)) if i == 0 else layer(x))
        return self.layers[-1](x)


def _linear(inputs: int, outputs: int, *, first: bool, rngs: nnx.Rngs) -> nnx.Linear:
    kernel = ("embed", "mlp") if first else ("mlp", "embed")
    return nnx.Linear(
        inputs,
        outputs,
        rngs=rngs,
        kernel_metadata={"out_sharding": kernel},
        bias_metadata={"out_sharding": kernel[1:]},
    )


class MlpWorkload(Workload[MlpConfig]):
    """The perceptron on its data set."""

    @property
    def title(self) -> str:
        on = data_place(self.config.data, self.config.dataset)
        return f"mlp {'-'.join(map(str, self.sizes))} on {on}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """From the inputs to the classes, which both follow the data set."""
        inputs = self._dataset.train.take(np.zeros(1, dtype=np.int64))["x"].shape[1]
        return (inputs, *self.config.hidden, self._dataset.classes)

    def dataset(self) -> Dataset:
        return self._dataset

    def model(self, rngs: nnx.Rngs) -> Mlp:
        return Mlp(self.sizes, rngs)

    def loss(self, model: Mlp, batch: Batch, watch: Watch) -> ByRow:
        losses = optax.softmax_cross_entropy_with_integer_labels(
            model(batch["x"], watch), batch["y"]
        )
        return ByRow(losses, jnp.ones_like(losses))

    def metrics(self, model: Mlp, batch: Batch) -> dict[str, ByRow]:
        right = jnp.argmax(model(batch["x"]), axis=-1) == batch["y"]
        return {"accuracy": ByRow(right.astype(jnp.float32), jnp.ones(right.shape))}

    @cached_property
    def _dataset(self) -> Dataset:
        if place := data_place(self.config.data, ""):
            return packed.dataset(place)
        return digits() if self.config.dataset == "digits" else synthetic()
