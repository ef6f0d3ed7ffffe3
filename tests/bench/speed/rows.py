"""What is measured: a line of the table each, and the arithmetic that a token or an image costs. No jax, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.lm.presets import Shape


@dataclass(frozen=True)
class Size:
    """Of a decoder with grouped heads and SwiGLU, whose embedding is its output layer."""

    layers: int = 16
    dim: int = 2048
    heads: int = 32
    kv_heads: int = 8
    ff: int = 8192
    vocab: int = 128_256
    sequence: int = 2048

    @property
    def head(self) -> int:
        return self.dim // self.heads

    @property
    def flops_per_token(self) -> float:
        """Of a training step."""
        sizes = ("layers", "dim", "heads", "kv_heads", "ff", "vocab")
        return Shape(**{name: getattr(self, name) for name in sizes}).flops_per_token(self.sequence)


LLAMA = Size()
TINY = Size(layers=2, dim=64, heads=4, kv_heads=2, ff=128, vocab=256, sequence=32)


@dataclass(frozen=True)
class Row:
    """One line. `changes` are settings in place of the usual ones; what they mean is the measuring module's."""

    group: str  #: rows of a group share a process
    name: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    #: XLA flags, or other variables, that the process needs; such a row is a group of its own
    env: Mapping[str, str] = field(default_factory=dict[str, str])


#: The first row of a group is what the others are compared with: each changes one thing.
ROWS = (
    Row("jax", "JAX, 8 rows"),
    Row("jax", "JAX, 16 rows", {"batch": 16}),
    Row("torch", "torch.compile, as people use it, 8 rows"),
    Row("torch", "torch.compile, as people use it, 16 rows", {"batch": 16}),
    Row("torch", "PyTorch tuned, 8 rows", {"tuned": True}),
    Row("torch", "PyTorch tuned, 16 rows", {"tuned": True, "batch": 16}),
    Row("fp8", "JAX, layers in FP8, 8 rows", {"fp8": True}),
    Row("levers", "waiting for each step", {"wait": True}),
    Row("levers", "cross-entropy by its definition", {"plain_loss": True}),
    Row("levers", "all logits at one time", {"loss_chunk": 0}),
    Row("levers", "bfloat16 weights, float32 master in the optimiser", {"master": True}),
    Row("levers", "layers in a loop", {"stacked": True}),
    Row("levers", "attention by its definition", {"attention": "plain"}),
    Row("levers", "keeping results of products only", {"remat": "dots"}),
    Row("vit", "ViT-B/16, JAX, 128 images"),
    Row("timm", "ViT-B/16, timm with torch.compile, 128 images"),
    Row("flag-1", "no Triton GEMMs", env={"XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false"}),
    Row("flag-2", "autotuning level 0", env={"XLA_FLAGS": "--xla_gpu_autotune_level=0"}),
    Row("flag-3", "no command buffers", env={"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}),
)  # fmt: skip
