"""What it costs that a step says of each row whether it was finite, and that a bad step changes nothing.

    python -m tests.bench.bench_verdicts [--pairs=60] [--only=mlp]

CPU time of the step as it is, beside one that does neither and one that only lacks the first, in turn on one device.
Prints the mean of the ratios with its 95 % interval.
"""

from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from workloads.data.rows import Feed
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program, StepOutcome
from workloads.frame.workload import Batch, Workload
from workloads.lm import LmConfig
from workloads.lm.workload import LmWorkload
from workloads.mlp import MlpConfig
from workloads.mlp.model import MlpWorkload

#: CPU seconds of the steps that are compared at a time.
BLOCK_S = 0.25


class Unmarked(Program):
    """Without a word about rows."""

    def _gradients(self, model: nnx.Module, batch: Batch) -> Any:
        graph, parameters, others = nnx.split(model, nnx.Param, ...)

        def mean(parameters: Any) -> jax.Array:
            trained = nnx.merge(graph, parameters, others, copy=True)
            found = self.workload.loss(trained, batch, lambda x: x)
            return found.values.sum() / found.weights.sum()

        loss, gradients = jax.value_and_grad(mean)(parameters)
        all_good = jnp.ones(len(next(iter(batch.values()))), jnp.bool_)
        return loss, gradients, all_good, all_good


class Unguarded(Unmarked):
    """Nor does it keep the state where a step was bad."""

    def _step(self, state: Any, before: jax.Array, batch: Batch) -> tuple[Any, StepOutcome]:
        model, optimizer = nnx.merge(self._graph, state, copy=True)
        loss, gradients, forward, backward = self._gradients(model, batch)
        norm = optax.tree.norm(gradients)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), StepOutcome(before, loss, norm, forward, backward)


class Runner:
    """A compiled step and its state."""

    def __init__(self, program: Program, batch: Batch) -> None:
        self._good, self._batch = program.all_good(), batch
        self._step = program.compile(batch)
        self._state = program.first_state()

    def cpu_s(self, steps: int) -> float:
        """CPU time of so many steps, of all threads."""
        begin = time.process_time()
        for _ in range(steps):
            self._state, outcome = self._step(self._state, self._good, self._batch)
        jax.block_until_ready((self._state, outcome))
        return time.process_time() - begin


def compare(workload: Workload[Any], pairs: int) -> None:
    mesh = mesh_of(workload.config)
    feed = Feed(workload.dataset(), workload.config.batch, 0, 0, 1)
    programs = {kind: kind(workload, mesh) for kind in (Program, Unmarked, Unguarded)}
    batch = programs[Program].batch(next(feed))
    runners = {kind: Runner(program, batch) for kind, program in programs.items()}
    steps = max(1, round(BLOCK_S / min(runners[Program].cpu_s(3) / 3 for _ in range(3))))
    taken = {kind: [] for kind in runners}
    for pair in range(pairs):
        order = list(runners)[:: 1 if pair % 2 else -1]
        for kind in order:
            taken[kind].append(runners[kind].cpu_s(steps))
    each = {kind: 1000 * statistics.median(times) / steps for kind, times in taken.items()}
    print(f"{workload.title}: {pairs} x {steps} steps, {each[Program]:.2f} ms of CPU each")
    for kind, what in ((Unmarked, "marks of rows"), (Unguarded, "marks and guard of the state")):
        ratios = np.array(taken[Program]) / np.array(taken[kind]) - 1
        mean, half = ratios.mean(), 1.96 * ratios.std(ddof=1) / pairs**0.5
        low, high = 100 * (mean - half), 100 * (mean + half)
        print(
            f"  {what:30} {100 * mean:+.2f} %  [{low:+.2f}, {high:+.2f}], median {100 * np.median(ratios):+.2f} %"
        )


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    workloads = {
        "mlp": lambda: MlpWorkload(MlpConfig(dataset="synthetic")),
        "lm": lambda: LmWorkload(LmConfig(preset="1m")),
    }
    for name, make in workloads.items():
        if arguments.only in ("", name):
            compare(make(), arguments.pairs)


if __name__ == "__main__":
    main()
