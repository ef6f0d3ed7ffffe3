"""Faults put into a model, in each layer, forwards and backwards, on devices, in rows and everywhere: the
replay must tell them apart. One process with four devices; the steps are compiled once for each mesh."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from workloads.data.rows import Dataset, Rows
from workloads.frame.config import TrainConfig
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.frame.replay import Bench, bad_in, examine
from workloads.frame.workload import Batch, ByRow, Watch, Workload
from workloads.mlp.model import Mlp

pytestmark = pytest.mark.slow

DEVICES, ROWS, LAYERS = 4, 16, 3
SIZES = (8, 16, 8, 4)


@jax.custom_vjp
def _breaks_backwards(h: jax.Array, bad: jax.Array) -> jax.Array:
    return h


def _forwards(h: jax.Array, bad: jax.Array) -> tuple[jax.Array, jax.Array]:
    return h, bad


def _backwards(bad: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    return jnp.where(bad[:, None], jnp.nan, gradient), None


_breaks_backwards.defvjp(_forwards, _backwards)


class Breakable(Workload[TrainConfig]):
    """A perceptron that fails at a row whose `fault` says where: 1 + layer forwards, -1 - layer backwards."""

    title = "breakable"

    def model(self, rngs: nnx.Rngs) -> Mlp:
        return Mlp(SIZES, rngs)

    def loss(self, model: Mlp, batch: Batch, watch: Watch) -> ByRow:
        h, fault = batch["x"], batch["fault"]
        for i, layer in enumerate(model.layers):
            h = layer(h)
            h = watch(h) if i == 0 else h
            h = jnp.where((fault == 1 + i)[:, None], jnp.nan, h)
            h = _breaks_backwards(h, fault == -1 - i)
            h = jnp.tanh(h)
        return ByRow((h**2).sum(axis=1), jnp.ones(len(h)))

    def metrics(self, model: Mlp, batch: Batch) -> dict[str, ByRow]:
        raise NotImplementedError

    def dataset(self) -> Dataset:
        raise NotImplementedError


@dataclass
class Rig:
    """A program on a mesh, compiled, and three steps of it, of which the second is broken."""

    program: Program
    step: Callable[..., Any]
    rows: Rows

    def verdict(self, code: int, where: str, place: int, *, once: bool) -> tuple[str, str, int]:
        """Break the second step, and say what the replay says: blame, device, exit code."""
        clean = {**self.rows, "fault": np.zeros(ROWS, np.int32)}
        broken = {**clean, "fault": clean["fault"].copy()}
        if where == "data":
            broken["fault"][place] = code
        bad = {"data": (), "device": jax.devices()[place : place + 1], "model": jax.devices()}
        spoil = _spoiler(set(bad[where]), code, once=once)

        program = self.program
        state, good = program.first_state(), program.all_good()
        state, first = self.step(state, good, program.batch(clean))
        before = jax.tree.map(np.array, state)
        batch = program.batch(broken)
        state, outcome = self.step(state, first.good, spoil(batch))
        state, after = self.step(state, outcome.good, program.batch(clean))

        assert first.good
        assert not outcome.good
        assert not after.good, "a step after the bad one counts"
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.array, state), before)
        bench = Bench(program, self.step, state, batch)
        found = examine(bench, bad_in(program, outcome), spoil, 0, apart=True)
        return found.blame, found.device, int(found.code)


def _spoiler(bad: set[Any], code: int, *, once: bool) -> Callable[[Batch], Batch]:
    """Makes these devices break, each time or only the first."""
    times = itertools.count()

    def spoil(batch: Batch) -> Batch:
        if next(times) and once:
            return batch
        array = batch["fault"]
        pieces = [
            jax.device_put(np.full(shard.data.shape, code, np.int32), shard.device)
            if shard.device in bad
            else shard.data
            for shard in array.addressable_shards
        ]
        whole = jax.make_array_from_single_device_arrays(array.shape, array.sharding, pieces)
        return {**batch, "fault": whole}

    return spoil


def _rig(tensor: int) -> Rig:
    config = TrainConfig(steps=10, batch=ROWS, tensor=tensor)
    program = Program(Breakable(config), mesh_of(config))
    x = np.random.default_rng(0).standard_normal((ROWS, SIZES[0]), dtype=np.float32)
    example = program.batch({"x": x, "fault": np.zeros(ROWS, np.int32)})
    return Rig(program, program.compile(example, in_haste=True), {"x": x})


@pytest.fixture(scope="module")
def devices() -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    assert jax.device_count() == DEVICES, "something in this process has used jax before"


@pytest.fixture(scope="module")
def apart(devices: None) -> Rig:
    """Each device with a copy of the model."""
    return _rig(tensor=1)


@pytest.fixture(scope="module")
def shared(devices: None) -> Rig:
    """Two copies of the model on two devices each."""
    return _rig(tensor=2)


def _codes() -> list[int]:
    return [sign * (1 + layer) for layer in range(LAYERS) for sign in (1, -1)]


def _id(value: object) -> str | None:
    if not isinstance(value, int):
        return None
    return f"layer{abs(value) - 1}-{'forwards' if value > 0 else 'backwards'}"


@pytest.mark.parametrize("code", _codes(), ids=_id)
class TestEachDeviceWithACopy:
    @pytest.mark.parametrize("once", [False, True], ids=["always", "once"])
    def test_a_device(self, apart: Rig, code: int, once: bool) -> None:
        place = abs(code)
        found = apart.verdict(code, "device", place, once=once)
        assert found == ("device", f"device {place} of host 0", 71)

    def test_a_row(self, apart: Rig, code: int) -> None:
        assert apart.verdict(code, "data", 5 * abs(code), once=False) == ("data", "", 65)

    def test_everything(self, apart: Rig, code: int) -> None:
        assert apart.verdict(code, "model", 0, once=False) == ("model", "", 65)


@pytest.mark.parametrize("code", [2, -1], ids=_id)
class TestDevicesThatShareACopy:
    def test_a_device(self, shared: Rig, code: int) -> None:
        found = shared.verdict(code, "device", 3, once=False)
        assert found == ("device", "device 3 of host 0", 71)

    def test_a_row(self, shared: Rig, code: int) -> None:
        assert shared.verdict(code, "data", 9, once=False) == ("data", "", 65)

    def test_everything(self, shared: Rig, code: int) -> None:
        assert shared.verdict(code, "model", 0, once=False) == ("model", "", 65)

    def test_a_device_once(self, shared: Rig, code: int) -> None:
        blame, device, exit_code = shared.verdict(code, "device", 3, once=True)
        assert (blame, exit_code) == ("device", 71)
        assert device in ("device 3 of host 0", "devices 2 to 3 of host 0")
