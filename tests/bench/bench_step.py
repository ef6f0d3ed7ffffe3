"""What the frame's own Python costs in a step: CPU time of the main thread, which feeds the devices.

    python -m tests.bench.bench_step [--steps=4000]

A perceptron of almost nothing is trained for few and for many steps, in this process; the difference is that of the
steps alone. The devices compute in threads of their own.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import jax

from workloads.contract import ProgramContext, Reporter
from workloads.frame.loop import train
from workloads.frame.signals import Watcher
from workloads.mlp import MlpConfig
from workloads.mlp.model import MlpWorkload

_FEW = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    many = parser.parse_args().steps
    jax.config.update("jax_platforms", "cpu")
    watcher = Watcher()
    _cpu_s(_FEW, watcher)  # imports and caches
    spent = _cpu_s(many, watcher) - _cpu_s(_FEW, watcher)
    print(f"main thread, CPU time a step: {spent / (many - _FEW) * 1e3:.3f} ms")


def _cpu_s(steps: int, watcher: Watcher) -> float:
    config = MlpConfig(
        steps=steps, batch=8, hidden=(8,), log_every=steps, checkpoint_every=0, checkpoint_minutes=0
    )
    with tempfile.TemporaryDirectory() as folder:
        context = ProgramContext(out=f"{folder}/out", workdir=f"{folder}/work")
        began = time.thread_time()
        train(MlpWorkload(config), context, Reporter(context), watcher)
        return time.thread_time() - began


if __name__ == "__main__":
    main()
