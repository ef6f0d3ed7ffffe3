"""The same training steps in PyTorch: as people write them, and tuned. On a GPU, or on the CPU for tests."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as fn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.bench.speed.rows import Size

WARM, STEPS, TAKES = 5, 20, 3


def device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class Layer(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.norms = nn.ModuleList(nn.RMSNorm(size.dim, eps=1e-5) for _ in range(2))
        self.qkv = nn.Linear(size.dim, (size.heads + 2 * size.kv_heads) * size.head, bias=False)
        self.out = nn.Linear(size.dim, size.dim, bias=False)
        self.gate_up = nn.Linear(size.dim, 2 * size.ff, bias=False)
        self.down = nn.Linear(size.ff, size.dim, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        size, (rows, tokens, _) = self.size, x.shape
        qkv = self.qkv(self.norms[0](x)).view(rows, tokens, -1, size.head).transpose(1, 2)
        q, k, v = qkv.split([size.heads, size.kv_heads, size.kv_heads], dim=1)
        attended = fn.scaled_dot_product_attention(
            _turned(q, cos, sin), _turned(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(rows, tokens, -1))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(fn.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.dim)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.dim, eps=1e-5)
        frequencies = 500_000.0 ** (-torch.arange(0, size.head, 2) / size.head)
        angles = torch.arange(size.sequence)[:, None] * frequencies
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.norm(x)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def plain_loss(x: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As people write it: all logits, in float32."""
    return fn.cross_entropy(fn.linear(x, head.to(x.dtype)).float().flatten(0, 1), targets.flatten())


class FusedLoss(torch.autograd.Function):
    """Output layer and cross-entropy in chunks of tokens, the gradients made on the way forward."""

    of_chunk: Any = None  #: `_of_chunk`, compiled or not

    @staticmethod
    def forward(ctx: Any, x: Any, head: Any, targets: Any, chunk: int) -> Any:
        of_x, of_head = torch.empty_like(x), torch.zeros_like(head, dtype=torch.float32)
        small = head.to(x.dtype)
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            loss, of_logits = FusedLoss.of_chunk(x[part] @ small.T, targets[part])
            total += loss
            of_logits = (of_logits / len(x)).to(x.dtype)
            of_x[part] = of_logits @ small
            of_head += of_logits.T @ x[part]
        ctx.save_for_backward(of_x, of_head.to(head.dtype))
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        of_x, of_head = ctx.saved_tensors
        return of_x * gradient, of_head * gradient, None, None


def _of_chunk(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = logits.float()
    below = torch.logsumexp(wide, dim=-1, keepdim=True)
    hit = wide.gather(1, targets[:, None])
    of_logits = torch.exp(wide - below)
    return (below - hit).sum(), of_logits.scatter_add(1, targets[:, None], -torch.ones_like(hit))


def llama(
    size: Size, batch: int = 8, steps: int = STEPS, *, tuned: bool = False, compiled: bool = True
) -> dict[str, float]:
    """Seconds of a step and the most bytes in use: bfloat16 by autocast, float32 weights, AdamW, clipped to 1.

    `tuned`: `max-autotune` without CUDA graphs, cuDNN's attention alone, the loss fused with the output layer.
    """
    torch.set_float32_matmul_precision("high")
    device = _device()
    net = Llama(size).to(device)
    tokens = torch.randint(size.vocab, (batch, size.sequence + 1), device=device)
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda"
    )

    def loss(x: torch.Tensor) -> torch.Tensor:
        if not tuned:
            return plain_loss(x, net.embedding.weight, tokens[:, 1:])
        return FusedLoss.apply(x.flatten(0, 1), net.embedding.weight, tokens[:, 1:].flatten(), 2048)  # pyright: ignore[reportReturnType]

    def forward() -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return loss(net(tokens[:, :-1]))

    FusedLoss.of_chunk = torch.compile(_of_chunk) if compiled else _of_chunk
    if compiled:
        mode = "max-autotune-no-cudagraphs" if tuned else "default"
        net = torch.compile(net, mode=mode)
        loss = loss if tuned else torch.compile(loss)
    backend = [SDPBackend.CUDNN_ATTENTION] if tuned and device == "cuda" else list(_ANY)

    def step() -> torch.Tensor:
        with sdpa_kernel(backend):
            found = forward()
            found.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return found

    return _measured(step, steps)


_ANY = (
    SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH,
)  # fmt: skip


def vit(
    batch: int = 128, steps: int = STEPS, *, preset: str = "b16", compiled: bool = True
) -> dict[str, float]:
    """timm's ViT of 224 x 224 with AdamW: B/16, or the smallest one."""
    import timm

    device = _device()
    name = "vit_base_patch16_224" if preset == "b16" else "vit_tiny_patch16_224"
    net: Any = timm.create_model(name, num_classes=1000).to(device)
    images = torch.randn(batch, 3, 224, 224, device=device)
    labels = torch.randint(1000, (batch,), device=device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=device == "cuda")
    forward = torch.compile(net) if compiled else net

    def step() -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            found = fn.cross_entropy(forward(images), labels)
        found.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return found

    return _measured(step, steps)


def _measured(step: Callable[[], torch.Tensor], steps: int) -> dict[str, float]:
    def some(count: int) -> float:
        start = time.perf_counter()
        last = [step() for _ in range(count)][-1]
        if not math.isfinite(float(last.detach())):  # waits for the device, too
            raise FloatingPointError("a step was not finite: its time means nothing")
        return time.perf_counter() - start

    some(WARM)
    taken = [some(steps) / steps for _ in range(TAKES)]
    most = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {"seconds": statistics.median(taken), "bytes": most}
