"""What it costs that a step says of each row whether it was finite, and that a bad step leaves the model as it is.

    python -m tests.bench.bench_verdicts [--rounds=100] [--only=mlp]

CPU time of the step as it is, beside one that does neither, in turn on one device. Each is set up twice, as where its
arrays happen to lie makes 2 %. Prints the median of the ratios and its 95 % interval, and what the compiler counts.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from workloads.data.rows import Feed, Rows
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program, StepOutcome, _plain
from workloads.frame.workload import Batch, Workload
from workloads.lm import LmConfig
from workloads.lm.workload import LmWorkload
from workloads.mlp import MlpConfig
from workloads.mlp.model import MlpWorkload

#: CPU seconds of the steps that are compared at a time.
BLOCK_S = 0.1


class Bare(Program):
    """Without a word about rows, and with nothing to go back to."""

    def _step(self, state: Any, before: jax.Array, batch: Batch) -> tuple[Any, StepOutcome]:
        model, optimizer = self.merged(state)
        graph, parameters, others = nnx.split(model, nnx.Param, ...)

        def mean(parameters: Any) -> jax.Array:
            trained = nnx.merge(graph, parameters, others, copy=True)
            found = self.workload.loss(trained, batch, lambda x: x)
            return found.values.sum() / found.weights.sum()

        loss, gradients = jax.value_and_grad(mean)(parameters)
        norm = optax.tree.norm(gradients)
        if clip := self.config.clip:
            gradients = optax.tree.scale(clip / jnp.maximum(norm, clip), gradients)
        optimizer.update(model, gradients)
        rows = jnp.ones(self.config.batch, jnp.bool_)
        return _plain(nnx.state((model, optimizer))), StepOutcome(before, loss, norm, rows, rows)


class Runner:
    """A compiled step and its state."""

    def __init__(self, program: Program, rows: Rows) -> None:
        self._good, self._batch = program.all_good(), program.batch(rows)
        self._step = program.compile(self._batch)
        self._state = program.first_state()

    def counted(self, name: str) -> float:
        """What the compiler says of the step: `flops`, `bytes accessed`."""
        return self._step.cost_analysis()[name]

    def cpu_s(self, steps: int) -> float:
        """CPU time of so many steps, of all threads."""
        begin = time.process_time()
        for _ in range(steps):
            self._state, outcome = self._step(self._state, self._good, self._batch)
        jax.block_until_ready((self._state, outcome))
        return time.process_time() - begin


def compare(workload: Workload[Any], rounds: int) -> None:
    random = np.random.default_rng(0)
    mesh = mesh_of(workload.config)
    rows = next(Feed(workload.dataset(), workload.config.batch, 0, 0, 1))
    runners = {
        (kind, copy): Runner(kind(workload, mesh), rows)
        for kind in (Program, Bare)
        for copy in range(2)
    }
    steps = max(1, round(BLOCK_S * 3 / min(runners[Program, 0].cpu_s(3) for _ in range(3))))
    taken: dict[Any, list[float]] = {which: [] for which in runners}
    for _ in range(rounds):
        for place in random.permutation(len(runners)):
            which = list(runners)[place]
            taken[which].append(runners[which].cpu_s(steps))
    as_it_is, bare = (
        np.array([taken[kind, 0], taken[kind, 1]]).ravel() for kind in (Program, Bare)
    )
    ratios = 100 * (as_it_is / bare - 1)
    medians = [np.median(random.choice(ratios, len(ratios))) for _ in range(2000)]
    low, high = np.percentile(medians, (2.5, 97.5))
    print(f"{workload.title}: {1000 * np.median(as_it_is) / steps:.2f} ms of CPU each step")
    print(f"  CPU time        {np.median(ratios):+.2f} %  [{low:+.2f}, {high:+.2f}]")
    for name in ("flops", "bytes accessed"):
        more = runners[Program, 0].counted(name) / runners[Bare, 0].counted(name) - 1
        print(f"  {name:14}  {100 * more:+.2f} %")


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    workloads = {
        "mlp": lambda: MlpWorkload(MlpConfig(dataset="synthetic")),
        "lm": lambda: LmWorkload(LmConfig(preset="1m", batch=8, data="pydoc")),
    }
    for name, make in workloads.items():
        if arguments.only in ("", name):
            compare(make(), arguments.rounds)


if __name__ == "__main__":
    main()
