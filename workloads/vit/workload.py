"""The Vision Transformer as a workload of the frame: images, loss and accuracy."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from functools import cached_property

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from workloads.data.images import Augmentation, open_images
from workloads.data.places import data_place
from workloads.data.rows import Dataset
from workloads.frame.workload import Batch, ByRow, Watch, Workload
from workloads.vit import VitConfig
from workloads.vit.model import Vit


class VitWorkload(Workload[VitConfig]):
    """The transformer on its images."""

    @property
    def title(self) -> str:
        c = self.config
        return (
            f"vit of {c.depth} layers, {c.dim} wide, on patches of {c.patch} of "
            f"{c.size} x {c.size} points, of {self._place}"
        )

    def dataset(self) -> Dataset:
        return self._dataset

    @property
    def flops_per_row(self) -> float:
        c = self.config
        patches = (c.size // c.patch) ** 2 + (c.pooling == "token")
        weights = c.depth * (4 * c.dim**2 + 2 * c.dim * c.mlp) + c.patch**2 * c.channels * c.dim
        return 6.0 * patches * weights + 12.0 * c.depth * patches**2 * c.dim

    def row_layout(self) -> dict[str, jax.ShapeDtypeStruct]:
        c = self.config
        image, number = (c.size, c.size, c.channels), jax.ShapeDtypeStruct((), jnp.int32)
        row = {"x": jax.ShapeDtypeStruct(image, jnp.uint8), "y": number}
        mixed = {"other": number, "share": jax.ShapeDtypeStruct((), jnp.float32)}
        return {**row, **mixed} if c.mixup else row

    def model(self, rngs: nnx.Rngs) -> Vit:
        return Vit(self.config, self._dataset.classes, rngs)

    def loss(self, model: Vit, batch: Batch, watch: Watch) -> ByRow:
        labels = self._labels(batch["y"])
        if "share" in batch:
            labels += batch["share"][:, None] * (self._labels(batch["other"]) - labels)
        losses = optax.softmax_cross_entropy(model(batch["x"], watch), labels)
        return ByRow(losses, jnp.ones_like(losses))

    def metrics(self, model: Vit, batch: Batch) -> dict[str, ByRow]:
        scores = model(batch["x"])
        right = jnp.argmax(scores, axis=-1) == batch["y"]
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, batch["y"])
        weights = jnp.ones_like(losses)
        return {
            "accuracy": ByRow(right.astype(jnp.float32), weights),
            "loss": ByRow(losses, weights),
        }

    def _labels(self, y: jax.Array) -> jax.Array:
        """float32 [rows, classes], smoothed."""
        one_hot = jax.nn.one_hot(y, self._dataset.classes)
        return optax.smooth_labels(one_hot, self.config.smoothing)

    @cached_property
    def _dataset(self) -> Dataset:
        c = self.config
        change = Augmentation(c.crop, c.pad, c.flip, c.brightness, c.mixup)
        return open_images(self._place, c.size, c.channels, change)

    @property
    def _place(self) -> str:
        return data_place(self.config.data, "digits")
