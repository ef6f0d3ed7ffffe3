"""What a checkpoint costs: how long a save blocks the training, its checksums, and how long it takes in the background.

    python -m tests.bench.bench_checkpoint [--mib=512] [--saves=5] [--devices=2]

A state of that size on CPU devices, saved to a folder while a step that donates it goes on.
"""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from workloads.checkpoints.checksums import Checksums
from workloads.checkpoints.saving import Checkpoints
from workloads.frame.mesh import AXES

_ARRAYS, _WIDTH = 8, 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("mib", 512), ("saves", 5), ("devices", 2)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", options.devices)
    state = _state(options.mib)
    layout = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    step = jax.jit(lambda state: jax.tree.map(lambda x: x * 0.999, state), donate_argnums=0)
    state = jax.block_until_ready(step(state))

    sums = Checksums(layout)
    wall, cpu = _times(lambda: sums(state).block_until_ready(), options.saves)
    print(f"checksums of {options.mib} MiB  {wall:.0f} ms, {cpu:.0f} ms of CPU time")
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder + "/checkpoints", 1, layout)
        blocked: list[float] = []
        computed: list[float] = []
        background: list[float] = []
        cpus: list[float] = []
        for number in range(options.saves + 1):
            jax.block_until_ready(state)
            began, used, own = time.perf_counter(), time.process_time(), time.thread_time()
            checkpoints.save(number, state, {"position": 0}, {})
            blocked.append((time.perf_counter() - began) * 1e3)
            computed.append((time.thread_time() - own) * 1e3)
            state = step(state)
            assert checkpoints.sound() is not None
            checkpoints.wait()
            background.append((time.perf_counter() - began) * 1e3)
            cpus.append((time.process_time() - used) * 1e3)
        began = time.perf_counter()
        checkpoints.state(options.saves, checkpoints.notes(options.saves))
        restored = (time.perf_counter() - began) * 1e3
        checkpoints.close()
    print(f"a save blocks            {_shown(blocked)},")
    print(f"  of which CPU time      {_shown(computed)}; the rest is waiting for a core")
    print(
        f"and is committed after   {_shown(background)}, {statistics.median(cpus[1:]):.0f} ms of CPU time"
    )
    print(f"restored and verified in {restored:.0f} ms")


def _shown(times: list[float]) -> str:
    return (
        f"median {statistics.median(times[1:]):.1f} ms, longest {max(times[1:]):.1f} ms "
        f"(the first {times[0]:.0f} ms)"
    )


def _state(mib: int) -> dict[str, jax.Array]:
    devices = jax.devices()
    mesh = jax.make_mesh((1, 1, len(devices), 1), AXES, axis_types=(AxisType.Auto,) * 4)
    rows = mib * 2**20 // 4 // _WIDTH // _ARRAYS
    split = NamedSharding(mesh, PartitionSpec("fsdp"))
    make: Any = jax.jit(
        lambda: {
            f"array_{n}": jax.random.normal(jax.random.key(n), (rows, _WIDTH), jnp.float32)
            for n in range(_ARRAYS)
        },
        out_shardings=split,
    )
    return make()


def _times(run: Callable[[], object], times: int) -> tuple[float, float]:
    """The median of wall clock and of CPU time, in ms; the first run does not count."""
    run()
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    return statistics.median(walls), statistics.median(cpus)


if __name__ == "__main__":
    main()
