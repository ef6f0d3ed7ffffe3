"""The shape of a Llama 3, named shapes, and how models of these sizes are trained. No jax here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """The sizes of the model's weights. The defaults are those of the smallest preset."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    vocab: int = Field(512, ge=2, description="tokens that the model knows")
    layers: int = Field(4, ge=1, description="transformer layers")
    dim: int = Field(128, ge=2, description="width of the activations between layers")
    heads: int = Field(4, ge=1, description="attention heads; each has dim / heads numbers")
    kv_heads: int = Field(2, ge=1, description="heads of keys and values, each for some heads")
    ff: int = Field(512, ge=1, description="hidden width of the feed-forward part (SwiGLU)")
    tied: bool = Field(True, description="the embedding is the output layer, too")
    context: int = Field(2048, ge=1, description="longest sequence that the positions are made for")
    rope_theta: float = Field(10_000.0, gt=1, description="base of the wavelengths of RoPE")
    rope_factor: float = Field(
        1.0,
        ge=1,
        description="how much longer Llama 3.1 makes the long wavelengths; 1: as they are",
    )
    rope_original: int = Field(
        8192, ge=1, description="context before the wavelengths were made longer"
    )
    norm_eps: float = Field(1e-5, gt=0, description="added to the mean square in RMSNorm")

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.dim // self.heads

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        attention = 2 * self.dim * (self.heads + self.kv_heads) * self.head
        layer = attention + 3 * self.dim * self.ff + 2 * self.dim
        return self.layers * layer + self.vocab * self.dim * (1 if self.tied else 2) + self.dim

    def flops_per_token(self, sequence: int) -> float:
        """Return the operations of a training step for a token: two for each weight that it meets, forwards, and twice
        that backwards; of the scores only the half that the mask leaves."""
        attention = 2 * self.dim * (self.heads + self.kv_heads) * self.head
        weights = self.layers * (attention + 3 * self.dim * self.ff) + self.vocab * self.dim
        return 6.0 * (weights + self.layers * sequence * self.dim)


#: What all models of Llama 3 have in common.
_LLAMA_3: dict[str, Any] = {
    "vocab": 128_256,
    "kv_heads": 8,
    "rope_theta": 500_000.0,
    "context": 131_072,
}

PRESETS = {
    name: Shape.model_validate(sizes)
    for name, sizes in {
        # for tests, and to see how things work
        "1m": {},
        # the size of GPT-2's smallest, with its vocabulary rounded up to a multiple of 128
        "125m": {
            "vocab": 50_304,
            "layers": 12,
            "dim": 768,
            "heads": 12,
            "kv_heads": 12,
            "ff": 2048,
        },
        # Llama 3.2 1B, 1.24e9 parameters
        "1b": {**_LLAMA_3, "layers": 16, "dim": 2048, "heads": 32, "ff": 8192, "rope_factor": 32.0},
        # Llama 3.1 8B
        "8b": {
            **_LLAMA_3,
            "layers": 32,
            "dim": 4096,
            "heads": 32,
            "ff": 14_336,
            "rope_factor": 8.0,
            "tied": False,
        },
    }.items()
}

#: Settings with which a model of that size is trained, beside its shape. Flags override them.
#: A step of `batch` rows of `sequence` tokens and `lr` are published:
#: 125m: GPT-3 Small, 0.5M tokens (arXiv:2005.14165, table 2.1)
#: 1b: TinyLlama, 2M tokens (arXiv:2401.02385)
#: 8b: sequence and `lr` of Llama 3 8B (arXiv:2407.21783), 2M tokens as GPT-3 6.7B
#: With `fsdp`, `stacked` and `remat` as here, `--check` finds that a step fits 64 chips of v4.
_SPLIT: dict[str, Any] = {"fsdp": 0, "stacked": True, "remat": "full"}
TRAINED: dict[str, dict[str, Any]] = {
    "1m": {},
    "125m": {"sequence": 2048, "batch": 256, "lr": 6e-4},
    "1b": {**_SPLIT, "sequence": 2048, "batch": 1024, "lr": 4e-4},
    "8b": {**_SPLIT, "sequence": 8192, "batch": 256, "lr": 3e-4},
}
