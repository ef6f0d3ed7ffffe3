"""The Vision Transformer: the published shapes, the same on every mesh, and not disturbed by what interrupts it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.support.workload_rig import Job
from tpujob.contract import Exit
from workloads.frame.config import parse
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.vit import VitConfig
from workloads.vit.model import Vit
from workloads.vit.workload import VitWorkload

#: All that draws at random, in a model that compiles quickly.
SMALL = (
    *("--dim=16", "--depth=1", "--mlp=32", "--batch=16", "--pooling=token"),
    *("--mixup=0.2", "--smoothing=0.1", "--warmup=0", "--log-every=1000"),
)


@pytest.mark.parametrize(
    ("preset", "parameters"),
    # https://github.com/huggingface/pytorch-image-models, vit_small_patch16_224 and vit_base_patch16_224. There the
    # token has a position of its own, which is one vector more.
    [("s16", 22_050_664 - 384), ("b16", 86_567_656 - 768)],
)
def test_a_preset_has_the_published_size(preset: str, parameters: int) -> None:
    config = VitConfig(preset=preset, pooling="token")
    with nnx.use_eager_sharding(False):
        model = nnx.eval_shape(lambda: Vit(config, 1000, nnx.Rngs(0)))
        assert sum(p.size for p in jax.tree.leaves(nnx.state(model, nnx.Param))) == parameters
        images = jax.ShapeDtypeStruct((2, 224, 224, 3), jnp.uint8)
        scores = nnx.eval_shape(lambda m, x: m(x), model, images)
    assert (scores.shape, scores.dtype) == ((2, 1000), jnp.float32)


def test_settings_that_cannot_work_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for argument, message in {
        "--preset=b8": "--preset=b8: there are tiny, s16, b16",
        "--patch=3": "--patch=3 does not divide --size=8",
        "--heads=3": "--heads=3 does not divide --dim=64",
    }.items():
        with pytest.raises(SystemExit) as error:
            parse(VitConfig, "vit", [argument])
        assert error.value.code == Exit.CONFIG
        assert message in capsys.readouterr().err


def first_losses(*flags: str) -> list[float]:
    """Return the losses of three steps."""
    workload = VitWorkload(parse(VitConfig, "vit", [*SMALL, *flags]))
    program = Program(workload, mesh_of(workload.config))
    dataset = workload.dataset()
    rows: list[dict[str, Any]] = []
    for number in range(3):
        draws = [np.random.default_rng((number, row)) for row in range(16)]
        assert dataset.augmented
        made = [dataset.augmented(row, random) for row, random in enumerate(draws)]
        rows.append(
            {name: np.stack([step_losses[name] for step_losses in made]) for name in made[0]}
        )
    step = program.compile(program.batch(rows[0]), program.in_haste)
    state, good = program.first_state(), program.all_good()
    losses = []
    for by_name in rows:
        state, outcome = step(state, good, program.batch(by_name))
        losses.append(float(outcome.loss))
    return losses


@pytest.mark.long
def test_the_losses_are_the_same_on_every_mesh_dropout_and_all() -> None:
    flags = ("--positions=sincos", "--dropout=0.1", "--drop-path=0.2")
    plain = first_losses(*flags, "--tensor=1")
    np.testing.assert_allclose(first_losses(*flags, "--fsdp=2", "--tensor=2"), plain, rtol=1e-5)
    assert len(set(plain)) == 3


@pytest.mark.long
def test_the_digits_are_told_apart(job: Job) -> None:
    job.module = "workloads.vit"
    [host] = job.run(devices=1)
    metrics = {event["name"]: event["value"] for event in host.events("metric")}
    assert metrics["test_accuracy"] >= 0.97
    steps = host.events("step")[10:]
    waited = sum(event["wait_ms"] for event in steps) / sum(event["ms"] for event in steps)
    assert waited < 0.02, "the training waits for its images"
