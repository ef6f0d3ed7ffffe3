"""The part of its devices' peak that a step is reported to have reached."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import pytest
import yaml
from flax import nnx

from tests.support.paths import ROOT
from tpujob.contract import ProgramContext, Reporter
from workloads.check import jaxpr
from workloads.frame.chips import peak
from workloads.frame.config import TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.frame.workload import Workload
from workloads.lm import LmConfig
from workloads.lm.workload import LmWorkload
from workloads.vit import VitConfig
from workloads.vit.workload import VitWorkload

LM = LmWorkload(LmConfig(batch=2, sequence=512, dim=256, heads=4, ff=1024, segments=False))
VIT = VitWorkload(VitConfig(batch=4))


@pytest.mark.parametrize("workload", [LM, VIT], ids=["lm", "vit"])
def test_operations_of_a_row_are_those_of_its_products(workload: Workload[Any]) -> None:
    """Three times those of the loss; the mask's half is left out in blocks, so not to the last one."""
    rows = {
        name: jax.ShapeDtypeStruct((workload.config.batch, *row.shape), row.dtype)
        for name, row in workload.row_layout().items()
    }
    with nnx.use_eager_sharding(False):
        graph, state = nnx.split(nnx.eval_shape(lambda: workload.model(nnx.Rngs(0))))

    def loss(state: Any, batch: Any) -> Any:
        return workload.loss(nnx.merge(graph, state, copy=True), batch, lambda x: x).values.sum()

    with jax.set_mesh(mesh_of(workload.config, jax.devices()[:1])):
        counted = 3 * jaxpr.count(jax.make_jaxpr(loss)(state, rows)).flops
    assert workload.flops_per_row * workload.config.batch == pytest.approx(counted, rel=0.06)


@pytest.mark.parametrize(("sequence", "remat"), [(2048, "none"), (2048, "full"), (8192, "full")])
def test_a_step_adds_what_is_recomputed(sequence: int, remat: Literal["none", "full"]) -> None:
    """Also with the attention kernel for TPU, which skips the blocks that the mask hides, but computes the blocks on
    the diagonal whole, and the scores a second time for the gradients."""
    config = LmConfig(
        batch=1,
        layers=1,
        sequence=sequence,
        context=sequence,
        dim=256,
        heads=4,
        ff=1024,
        segments=False,
        attention="splash",
        remat=remat,
    )
    workload = LmWorkload(config)
    program = Program(workload, mesh_of(config, jax.devices()[:1]))
    rows = {"tokens": jax.ShapeDtypeStruct((1, sequence + 1), jnp.int32)}
    executed = jaxpr.count(program.trace(rows).jaxpr).flops

    scores = config.layers * sequence * config.dim * (1 + 1024 / sequence)
    weights = config.flops_per_token(0) / 6
    once = (config.vocab + config.ff) * config.dim  # the head and the last product of a layer
    expected = 6 * weights + 7 * scores
    if remat == "full":
        expected += 2 * (weights - once) + 2 * scores
    assert executed == pytest.approx(sequence * expected, rel=0.01)
    assert workload.flops_per_row < executed < 1.9 * workload.flops_per_row


def test_a_step_at_half_the_peak_tells_an_mfu_of_a_half(tmp_path: Path) -> None:
    now = [0.0]
    reporter = Reporter(ProgramContext(out=str(tmp_path)))
    log = ProgressLog(
        reporter, TrainConfig(steps=2), speaks=False, clock=lambda: now[0], least_seconds=0.2
    )
    log.start_clock()
    now[0] = 0.4
    log.step(1, 0.5, 1.0, 0.0)
    assert json.loads((tmp_path / "events.jsonl").read_text())["mfu"] == 0.5


def test_devices_whose_peak_nobody_knows_have_no_mfu() -> None:
    assert peak("cpu") == 0.0
    assert peak("TPU v4") == 275e12
    assert peak("NVIDIA H200") == 989e12
    assert peak("NVIDIA L40S") == 2 * peak("NVIDIA L40") == 362e12


def test_the_dollars_of_the_large_config_follow_from_its_operations() -> None:
    text = (ROOT / "configs" / "llama-1b.yaml").read_text(encoding="utf-8")
    figures = re.findall(r"([0-9.]+) \$/h .*about ([0-9]+) \$ at ([0-9]+)% of", text)
    usd_per_hour, usd, percent = map(float, figures[0])
    config = LmConfig.model_validate(yaml.safe_load(text)["run"]["args"])
    operations = LmWorkload(config).flops_per_row * config.batch * config.steps
    hours = operations / (64 * peak("TPU v4") * percent / 100) / 3600
    assert usd == pytest.approx(hours * usd_per_hour, rel=0.05)
