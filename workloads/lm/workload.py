"""The Llama as a workload of the frame: data, loss and metrics."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

from workloads.data.rows import Dataset
from workloads.data.tokens import open_text
from workloads.frame.workload import Batch, ByRow, Watch, Workload
from workloads.lm import LmConfig
from workloads.lm.loss import cross_entropy
from workloads.lm.model import Llama


class LmWorkload(Workload[LmConfig]):
    """A Llama on rows of tokens: `tokens` [tokens + 1], and `segments` of the same size where a row has several
    documents: their numbers from 1, and 0 behind the last one."""

    @property
    def title(self) -> str:
        config = self.config
        return f"lm {config.preset}: {config.parameters:,} parameters, rows of {config.sequence} tokens"

    def dataset(self) -> Dataset:
        config = self.config
        text = open_text(config.data, config.tokenizer, config.vocab)
        return text.dataset(config.sequence, segments=config.segments)

    @property
    def tokens_per_row(self) -> int:
        return self.config.sequence

    @property
    def flops_per_row(self) -> float:
        return self.config.sequence * self.config.flops_per_token(self.config.sequence)

    def row_layout(self) -> dict[str, jax.ShapeDtypeStruct]:
        row = jax.ShapeDtypeStruct((self.config.sequence + 1,), jnp.int32)
        return {"tokens": row, **({"segments": row} if self.config.segments else {})}

    def model(self, rngs: nnx.Rngs) -> Llama:
        config = self.config
        return Llama(
            config,
            rngs,
            dtype=config.dtype,
            stacked=config.stacked,
            remat=config.remat,
            kind=config.attention,
        )

    def loss(self, model: Llama, batch: Batch, watch: Watch) -> ByRow:
        return self._losses(model, batch, watch, self.config.z_loss)

    def _losses(self, model: Llama, batch: Batch, watch: Watch, z_loss: float) -> ByRow:
        tokens = batch["tokens"]
        segments = batch.get("segments")
        counts = counted(tokens, segments)
        x, head = model(tokens[:, :-1], None if segments is None else segments[:, :-1], watch)
        targets, chunk = tokens[:, 1:], self.config.loss_chunk
        losses = cross_entropy(x, head, targets, counts, chunk=chunk, z_loss=z_loss)
        return ByRow(losses, counts.sum(axis=1))

    def metrics(self, model: Llama, batch: Batch) -> dict[str, ByRow]:
        return {"loss": self._losses(model, batch, lambda x: x, 0.0)}

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        return {**means, "perplexity": math.exp(min(means["loss"], 700.0))}


def counted(tokens: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Float32 [rows, tokens]: 1 for a token whose next one is to be predicted, as it is of the same document."""
    if segments is None:
        return jnp.ones((tokens.shape[0], tokens.shape[1] - 1))
    now, following = segments[:, :-1], segments[:, 1:]
    return ((now == following) & (now > 0)).astype(jnp.float32)
