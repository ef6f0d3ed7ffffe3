"""Measure how fast a Llama of 1.24e9 parameters and a ViT-B/16 train on one GPU: `python -m tests.bench.speed`.

    python -m tests.bench.speed [--tiny]

First the rate of matrix products alone, for 20 s, then a line for each row of the table. `--tiny` does all of it with a
model of nothing, on a CPU if need be, to see whether it works. Needs workloads' packages and "jax[cuda12]".
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workloads.frame.chips import peak
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.frame.workload import Workload
from workloads.lm import LmConfig
from workloads.lm.presets import Shape
from workloads.lm.workload import LmWorkload
from workloads.measure import text
from workloads.vit import VitConfig
from workloads.vit.workload import VitWorkload

WARM, STEPS, TAKES = 3, 20, 3  #: steps before, steps of a sample, samples
GEMM_S = 20.0
#: of a training step of ViT-B/16: weights, and scores and values of 12 layers
IMAGE_FLOPS = 6 * 86.4e6 * 197 + 12 * 12 * 197**2 * 768
LLAMA = Shape(layers=16, dim=2048, heads=32, kv_heads=8, ff=8192, vocab=128_256)
TINY = Shape(layers=2, dim=64, heads=4, kv_heads=2, ff=128, vocab=256)


def main(words: list[str]) -> None:
    tiny = "--tiny" in words
    rates = gemm(1.0 if tiny else GEMM_S, size=256 if tiny else 8192)
    print(f"{'matrix products alone':24} {shown(rates[-1])}, {rates[0] / 1e12:,.1f} at first")
    shape, sequence, steps = (TINY, 32, 2) if tiny else (LLAMA, 2048, STEPS)
    for batch in (8, 16):
        seconds, memory = llama(shape, sequence, batch, steps)
        rate = batch * sequence / seconds
        row = f"Llama, {batch} rows", f"{rate:,.0f} tokens/s", text.seconds(seconds)
        print(
            "{:24} {}, {} a step,".format(*row),
            shown(rate * shape.flops_per_token(sequence), memory),
        )
    batch, preset = (2, "tiny") if tiny else (128, "b16")
    seconds, memory = vit(batch, preset, steps)
    row = f"ViT, {batch} images", f"{batch / seconds:,.0f} images/s", text.seconds(seconds)
    print(
        "{:24} {}, {} a step,".format(*row),
        shown(0 if tiny else batch / seconds * IMAGE_FLOPS, memory),
    )


def gemm(seconds: float, size: int) -> list[float]:
    """Return the FLOP/s of square bfloat16 products, for each second of that time. A GPU slows down as it warms up: the
    last of them is the rate that a training step can hope for."""
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.bfloat16)
    twenty = jax.jit(lambda a, b: jax.lax.fori_loop(0, 20, lambda _, b: (a @ b) * (1 / size), b))
    b = jax.block_until_ready(twenty(a, a))
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        calls = 0
        while time.perf_counter() < min(start + 1, end):
            b = jax.block_until_ready(twenty(a, b))
            calls += 1
        rates.append(calls * 20 * 2 * size**3 / (time.perf_counter() - start))
    return rates


def llama(shape: Shape, sequence: int, batch: int, steps: int) -> tuple[float, int]:
    names = ("layers", "dim", "heads", "kv_heads", "ff", "vocab")
    sizes: Any = {name: getattr(shape, name) for name in names}
    config = LmConfig(
        batch=batch, sequence=sequence, context=sequence, loss_chunk=2048, dtype="bfloat16", **sizes
    )
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, shape.vocab, (batch, sequence + 1), dtype=np.int32)
    return measured(LmWorkload(config), {"tokens": tokens}, steps)


def vit(batch: int, preset: Any, steps: int) -> tuple[float, int]:
    workload, rng = VitWorkload(VitConfig(batch=batch, preset=preset)), np.random.default_rng(0)
    rows = {
        name: rng.integers(0, 10, (batch, *row.shape)).astype(row.dtype)
        for name, row in workload.row_layout().items()
    }
    return measured(workload, rows, steps)


def measured(
    workload: Workload[Any], rows: Mapping[str, np.ndarray[Any, Any]], steps: int
) -> tuple[float, int]:
    """Return the seconds of the frame's step on one device, over the same rows, and the peak of its memory in bytes."""
    program = Program(workload, mesh_of(workload.config, jax.devices()[:1]))
    batch = program.batch(dict(rows))
    step, state, good = program.compile(batch), program.first_state(), program.all_good()

    def some(count: int) -> None:
        nonlocal state, good
        for _ in range(count):
            state, outcome = step(state, good, batch)
            good = outcome.good
        if not jax.block_until_ready(good):
            raise FloatingPointError("a step was not finite: its time means nothing")

    some(WARM)
    taken = [_seconds(partial(some, steps)) / steps for _ in range(TAKES)]
    memory = jax.devices()[0].memory_stats() or {}
    return statistics.median(taken), memory.get("peak_bytes_in_use", 0)


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def shown(flops: float, memory: int = 0) -> str:
    """Return a text of FLOP/s, their share of the device's peak in bfloat16, and the memory."""
    limit = peak(jax.devices()[0].device_kind)
    parts = [f"{flops / 1e12:,.1f} TFLOP/s"] * bool(flops)
    parts += [f"{flops / limit:.1%} of {limit / 1e12:.0f}"] if limit and flops else []
    return ", ".join([*parts, *[f"{memory / 2**30:.1f} GiB"] * bool(memory)])


if __name__ == "__main__":
    main(sys.argv[1:])
