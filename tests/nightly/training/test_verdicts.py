"""Faults put into a model, in each layer, forwards and backwards, on devices, in rows and everywhere: the replay must
tell them apart. One process with four devices; each mesh has its programs compiled once.

tests/bench/README.md has the command that tries all cases; `make test` some of each kind.
"""

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tpujob.contract import faults
from workloads.data.rows import Dataset, Rows
from workloads.frame.config import ConfigError, TrainConfig
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.frame.workload import Batch, ByRow, Watch, Workload
from workloads.mlp.model import Mlp
from workloads.verdicts.blame import StepVerdict
from workloads.verdicts.fault_injection import Injection
from workloads.verdicts.replay import Replay, evidence, examine

DEVICES, ROWS, LAYERS = 4, 16, 3
SIZES = (8, 16, 8, 4)
EVERY_CASE = os.environ.get("TPUJOB_VERDICTS") == "all"

#: What is computed wrongly, and the number of it in `fault` in layer 0.
KINDS = {"forwards": 100, "backwards": 200}
MESHES: dict[str, dict[str, int]] = {
    "data": {"tensor": 1},
    "fsdp": {"tensor": 1, "fsdp": 4},
    "tensor": {"tensor": 2},
    "parts": {"tensor": 1, "accumulate": 2},
}
if EVERY_CASE:
    MESHES["fsdp and tensor"] = {"fsdp": 2, "tensor": 2}


@jax.custom_vjp
def _breaks_backwards(h: jax.Array, bad: jax.Array) -> jax.Array:
    return h


def _forwards(h: jax.Array, bad: jax.Array) -> tuple[jax.Array, jax.Array]:
    return h, bad


def _backwards(bad: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    return jnp.where(bad[:, None], jnp.nan, gradient), None


_breaks_backwards.defvjp(_forwards, _backwards)


class Breakable(Workload[TrainConfig]):
    """A perceptron that fails at a row whose `fault` says how and in which layer."""

    title = "breakable"

    def model(self, rngs: nnx.Rngs) -> Mlp:
        return Mlp(SIZES, rngs)

    def loss(self, model: Mlp, batch: Batch, watch: Watch) -> ByRow:
        h, fault = batch["x"], batch["fault"]
        for i, layer in enumerate(model.layers):
            h = watch(layer(h)) if i == 0 else layer(h)
            h = jnp.where((fault == KINDS["forwards"] + i)[:, None], jnp.nan, h)
            h = jnp.tanh(_breaks_backwards(h, fault == KINDS["backwards"] + i))
        return ByRow((h**2).sum(axis=1), jnp.ones(len(h)))

    def metrics(self, model: Mlp, batch: Batch) -> dict[str, ByRow]:
        raise NotImplementedError

    def dataset(self) -> Dataset:
        raise NotImplementedError


class Tokens(Workload[TrainConfig]):
    """A table, a layer, and the table again: all that is special of rows of tokens. Some do not count."""

    title = "tokens"

    def model(self, rngs: nnx.Rngs) -> nnx.Module:
        split = {"out_sharding": ("vocab", "embed")}
        table = nnx.Embed(32, SIZES[0], rngs=rngs, embedding_metadata=split)
        return nnx.Dict(table=table, layers=Mlp((SIZES[0], 16, SIZES[0]), rngs))

    def loss(self, model: Any, batch: Batch, watch: Watch) -> ByRow:
        counts = batch["counts"]
        x = model.layers(watch(model.table(batch["tokens"])))
        losses = optax.softmax_cross_entropy_with_integer_labels(
            model.table.attend(x), batch["targets"]
        )
        return ByRow((losses * counts).sum(axis=1), counts.sum(axis=1).astype(jnp.float32))

    def metrics(self, model: Any, batch: Batch) -> dict[str, ByRow]:
        raise NotImplementedError

    def dataset(self) -> Dataset:
        raise NotImplementedError


@dataclass
class Rig:
    """A compiled program on a mesh."""

    program: Program
    step: Callable[..., Any]
    rows: Rows  #: of a step that is finite
    first: Any  #: its first state, on the host

    def state(self) -> Any:
        return jax.device_put(self.first, self.program.shardings)

    def layer(self, state: Any) -> Any:
        """The first layer's part of a state, by name."""
        return state[0].layers[0]

    def parts_of(self, name: str) -> int:
        """Into how many parts an array of the first layer is split."""
        spec = self.layer(self.program.shardings)[name].spec
        return math.prod(self.program.mesh.shape[axis] for axis in spec if axis)

    def verdict(self, code: int, where: str, places: list[int], *, once: bool) -> StepVerdict:
        """Return the verdict on a step that is broken in these places: rows of the data, or devices."""
        broken = {**self.rows, "fault": np.zeros(ROWS, np.int32)}
        if where == "data":
            broken["fault"][places] = code
        bad = [jax.devices()[place] for place in places] if where == "device" else []
        return self.examined(broken, _spoiler(set(bad), code, once=once))

    def examined(self, rows: Rows, spoil: Callable[[Batch], Batch]) -> StepVerdict:
        """Return the verdict on a step that is not finite with these rows, which leaves the model as it is."""
        program = self.program
        batch = program.batch(rows)
        state, outcome = self.step(self.state(), program.all_good(), spoil(batch))
        state, after = self.step(state, outcome.good, program.batch(self.rows))

        assert not outcome.good
        assert not after.good, "a step after the bad one counts"
        state_before = jax.tree.map(np.array, state[0])
        jax.tree.map(np.testing.assert_array_equal, state_before, self.first[0])
        replay = Replay(program, self.step, state, batch, spoil)
        return examine(replay, evidence(program, outcome), 0, range(100, 100 + ROWS))


def _rig(workload: Workload[TrainConfig], rows: Rows) -> Rig:
    program = Program(workload, mesh_of(workload.config))
    step = program.compile(program.batch(rows), program.in_haste)
    return Rig(program, step, rows, jax.tree.map(np.array, program.first_state()))


def _spoiler(bad: set[Any], code: int, *, once: bool) -> Callable[[Batch], Batch]:
    """Makes these devices break, each time or only the first."""
    times = itertools.count()

    def spoil(batch: Batch) -> Batch:
        if next(times) and once:
            return batch
        return {**batch, "fault": _with(batch["fault"], bad, code)}

    return spoil


def _with(array: jax.Array, bad: set[Any], value: float) -> jax.Array:
    """The array, but these devices hold nothing but this value."""
    pieces = [
        jax.device_put(np.full(shard.data.shape, value, array.dtype), shard.device)
        if shard.device in bad
        else shard.data
        for shard in array.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, pieces)


@pytest.fixture(scope="module")
def devices() -> None:
    assert jax.device_count() == DEVICES, "something in this process has used jax before"


@pytest.fixture(scope="module", params=list(MESHES))
def rig(devices: None, request: pytest.FixtureRequest) -> Rig:
    config = TrainConfig(steps=10, batch=ROWS, **MESHES[request.param])
    x = np.random.default_rng(0).standard_normal((ROWS, SIZES[0]), dtype=np.float32)
    return _rig(Breakable(config), {"x": x, "fault": np.zeros(ROWS, np.int32)})


def _cases() -> list[Any]:
    every = [(kind, layer) for kind in KINDS for layer in range(LAYERS)]
    some = every if EVERY_CASE else [("forwards", 1), ("backwards", 0)]
    return [
        pytest.param(kind, KINDS[kind] + layer, id=f"{kind}-layer{layer}") for kind, layer in some
    ]


def _device(verdict: StepVerdict) -> tuple[str, str, int]:
    return verdict.blame, verdict.device, int(verdict.code)


@pytest.mark.parametrize(("kind", "code"), _cases())
class TestTheReplay:
    def test_names_a_device_that_is_broken(self, rig: Rig, kind: str, code: int) -> None:
        for place in range(DEVICES) if EVERY_CASE else [code % DEVICES]:
            verdict = rig.verdict(code, "device", [place], once=False)
            assert _device(verdict) == ("device", f"device {place} of host 0", 71), verdict.text

    def test_names_a_device_that_was_broken_once(self, rig: Rig, kind: str, code: int) -> None:
        verdict = rig.verdict(code, "device", [3], once=True)
        name = "devices 2, 3" if rig.program.mesh.shape["tensor"] > 1 else "device 3"
        assert _device(verdict) == ("device", f"{name} of host 0", 71), verdict.text

    @pytest.mark.parametrize("bad", [[9], [0, 4, 8, 12]], ids=["one", "one-on-each-device"])
    def test_names_only_bad_rows(self, rig: Rig, kind: str, code: int, bad: list[int]) -> None:
        verdict = rig.verdict(code, "data", bad, once=False)
        numbers = tuple(100 + row for row in bad)
        assert (verdict.blame, verdict.rows, verdict.host) == ("data", numbers, None), verdict.text
        assert int(verdict.code) == 65

    def test_blames_the_model_if_all_is_bad(self, rig: Rig, kind: str, code: int) -> None:
        verdict = rig.verdict(code, "data", list(range(ROWS)), once=False)
        assert _device(verdict) == ("model", "", 65), verdict.text


class TestAStateThatIsNotFinite:
    """Weights that broke after the step that made them: this is reported before any replay."""

    @pytest.mark.parametrize("name", ["kernel", "bias"])
    def test_is_the_device_s_whose_copy_differs(self, rig: Rig, name: str) -> None:
        verdict = self._examined(rig, name, jax.devices()[3:])
        copies = 4 // max(1, rig.parts_of(name))
        if copies > 1:
            assert _device(verdict) == ("device", "device 3 of host 0", 71), verdict.text
        else:  # of a part that exists once nothing is known
            assert _device(verdict) == ("", "", 65), verdict.text
            assert "device 3 of host 0" in verdict.text

    def test_is_the_model_s_if_all_copies_are_alike(self, rig: Rig) -> None:
        verdict = self._examined(rig, "kernel", jax.devices())
        assert _device(verdict) == ("model", "", 65), verdict.text

    def _examined(self, rig: Rig, name: str, bad: list[Any]) -> StepVerdict:
        state = rig.state()
        variable = rig.layer(state)[name]
        variable.set_value(_with(variable[...], set(bad), np.nan))
        state, outcome = rig.step(state, rig.program.all_good(), rig.program.batch(rig.rows))
        assert not outcome.good
        replay = Replay(
            rig.program, rig.step, state, rig.program.batch(rig.rows), lambda batch: batch
        )
        return examine(replay, evidence(rig.program, outcome), 0, range(ROWS))


@pytest.fixture(scope="module")
def tokens(devices: None) -> Rig:
    """Rows without a float, and a table that is split both ways."""
    config = TrainConfig(steps=10, batch=ROWS, fsdp=2, tensor=2)
    random = np.random.default_rng(0)
    tokens = random.integers(0, 32, (ROWS, 6), dtype=np.int32)
    counts = np.arange(6) < random.integers(2, 7, (ROWS, 1))
    return _rig(Tokens(config), {"tokens": tokens, "targets": tokens, "counts": counts})


class TestInjectedIntoTokens:
    """Tokens under `TPUJOB_FAULT=nan:...`."""

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            ("device=2", ("device", "device 2 of host 0", ())),
            ("device=2,transient=1", ("device", "devices 2, 3 of host 0", ())),
            ("where=data,device=3", ("data", "", (112,))),
            ("where=model", ("model", "", ())),
        ],
    )
    def test_it_is_found(self, tokens: Rig, fault: str, expected: Any) -> None:
        injection = Injection(faults.parse(f"nan:step=1,{fault}"))
        verdict = tokens.examined(injection.rows(1, tokens.rows), partial(injection.batch, 1))
        assert (verdict.blame, verdict.device, verdict.rows) == expected, verdict.text

    def test_rows_that_cannot_hold_a_bad_number_are_refused(self) -> None:
        injection = Injection(faults.parse("nan:step=1,where=data"))
        rows: Rows = {"pixels": np.zeros((4, 2), np.uint8), "counts": np.ones(4, np.bool_)}
        with pytest.raises(ConfigError, match="pixels is uint8, counts is bool"):
            injection.rows(1, rows)
