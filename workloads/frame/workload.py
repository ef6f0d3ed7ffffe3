"""The interface of a training program to the frame: data, a model, an optimiser, a loss and metrics by row."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np
import optax
from flax import nnx

from workloads.data.rows import Dataset
from workloads.frame.config import TrainConfig

#: Arrays with the same first dimension: the rows of a step, over all hosts.
Batch = dict[str, jax.Array]

#: Identity on activations [rows, ...]. The frame sees through it whether the gradients of each row are finite.
Watch = Callable[[jax.Array], jax.Array]

#: What biases and norms are called, in Flax and here.
_WITHOUT_DECAY = ("bias", "scale")

Config = TypeVar("Config", bound=TrainConfig)


class ByRow(NamedTuple):
    """A mean over a batch in the making: the sum of `values` over the sum of `weights`. Both are float32 [rows]."""

    values: jax.Array  #: of each row a sum over what it has: over its tokens, or of one picture
    weights: jax.Array  #: how much of that there was: the number of its tokens, or 1


class Workload(ABC, Generic[Config]):
    """A model, its data and its loss. A subclass and a `TrainConfig` are all that the frame needs.

    Everything is in terms of rows; batches, devices and hosts are the frame's. No row may depend on another: a
    mean over the batch inside the model (BatchNorm) mixes bad numbers of one row into all.
    """

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that describes the training."""

    @abstractmethod
    def dataset(self) -> Dataset:
        """Return rows to train on and rows to test on. Called once."""

    @abstractmethod
    def model(self, rngs: nnx.Rngs) -> nnx.Module:
        """Return a new model. Its parameters name their axes: `out_sharding=("embed", "mlp")`, see `mesh.RULES`.

        Other state (counts of dropout, running means) is carried from step to step and saved with the rest."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch, watch: Watch) -> ByRow:
        """Return the loss of each row; training minimises the mean. Pass the activations that enter the first layer
        through `watch`, so that a bad gradient can be traced to its row.

        Look tokens up with `jnp.take` (as nnx.Embed does): one that is not in the table becomes NaN, and the row is
        named. With `table[tokens]` it silently becomes the last one."""

    @abstractmethod
    def metrics(self, model: Any, batch: Batch) -> dict[str, ByRow]:
        """Return the metrics of a test by name; the model is in its evaluation mode."""

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        """Return the results of a test from the means of `metrics`, to add numbers that are no means, such as
        perplexity."""
        return means

    @property
    def tokens_per_row(self) -> int:
        """The tokens of a row, for the compile check's tokens per second. 0: rows are counted."""
        return 0

    @property
    def flops_per_row(self) -> float:
        """Operations of a training step on one row, without what is computed again: six for each weight that a token
        meets, and what attention adds. 0: unknown, and no MFU is reported."""
        return 0.0

    def row_layout(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and type of what one row has in a batch, by name. Looks at the first row to train on; override it
        where that takes long, or where the data is on the TPU's hosts only."""
        row = self.dataset().train.take(np.zeros(1, dtype=np.int64))
        return {name: jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for name, a in row.items()}

    def optimizer(self) -> optax.GradientTransformation:
        """Return AdamW by the settings; override it for another optimiser."""
        return adamw(self.config)


def adamw(config: TrainConfig) -> optax.GradientTransformation:
    """AdamW. What is called `bias` or `scale` does not decay."""
    return optax.adamw(
        schedule(config),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mask=_decays,
    )


def schedule(config: TrainConfig) -> optax.Schedule:
    """The learning rate by step: it rises for `warmup` steps, then falls along a cosine until `decay_steps`."""
    return optax.warmup_cosine_decay_schedule(
        0.0, config.lr, config.warmup_steps, config.schedule_steps, config.lr * config.final_lr
    )


def _decays(parameters: Any) -> Any:
    """By name: the number of dimensions says nothing, as norms of several layers may be in one array."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: str(getattr(path[-1], "key", path[-1])) not in _WITHOUT_DECAY, parameters
    )
