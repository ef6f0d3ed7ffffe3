"""python -m tests.bench.nanodo CHECKOUT [--rounds=20] [--dtype=bfloat16]

`CHECKOUT` is a clone of google-deepmind/nanodo; without it only our step is measured. Steps are taken in turn. Of two
ratios, the one of CPU time is disturbed less by other programs on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.bench.nanodo import theirs
from tests.bench.nanodo.model import NanoConfig, NanoWorkload
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.measure import text
from workloads.measure.samples import in_turn, interval, ratio

OURS, THEIRS = "the frame", "nanodo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dtype", default="float32,bfloat16")
    args = parser.parse_args()
    for dtype in args.dtype.split(","):
        config = NanoConfig(dtype=dtype)
        tokens = np.random.default_rng(0).integers(1, config.v, (config.batch, config.l), np.int32)
        ways, waits = ours(config, tokens)
        if args.checkout:
            step = partial(theirs.step(args.checkout, config), tokens)
            ways = {THEIRS: lambda step=step: jax.block_until_ready(step()), **ways}
        for name, clock in (("CPU time", time.process_time), ("time", time.perf_counter)):
            taken = in_turn(ways, args.rounds, clock=clock)
            for way, seconds in taken.items():
                print(
                    f"{dtype:9} {way:10} {text.seconds(interval(seconds).median)} of {name} a step"
                )
            if THEIRS in taken:
                print(
                    f"{dtype:9} by {name}, {text.times(ratio(taken[THEIRS], taken[OURS]))} as fast"
                )
        given = interval([waits() for _ in range(args.rounds)])
        low, high = text.seconds(given.low), text.seconds(given.high)
        print(
            f"{dtype:9} giving a step to the device takes {text.seconds(given.median)} ({low} to {high})"
        )


def ours(
    config: NanoConfig, tokens: np.ndarray[Any, Any]
) -> tuple[dict[str, Callable[[], object]], Callable[[], float]]:
    """The frame's step; and the seconds of CPU time for which the calling thread is busy with giving one."""
    program = Program(NanoWorkload(config), mesh_of(config, jax.devices()[:1]))
    batch = program.batch({"tokens": tokens})
    compiled, held = program.compile(batch), [program.first_state(), program.all_good()]

    def give() -> Any:
        state, outcome = compiled(*held, batch)
        held[:] = state, outcome.good
        return outcome

    def giving() -> float:
        jax.block_until_ready(held)
        start = time.thread_time()
        give()
        return time.thread_time() - start

    return {OURS: lambda: jax.block_until_ready(give())}, giving


if __name__ == "__main__":
    main()
