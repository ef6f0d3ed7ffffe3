"""A step in parts is the step of the whole batch: the same loss, gradients and flags of rows."""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from workloads.data.rows import Rows
from workloads.frame.config import ConfigError
from workloads.frame.mesh import mesh_of
from workloads.frame.program import MODEL, Program, StepOutcome
from workloads.frame.workload import Batch, ByRow, Watch
from workloads.mlp import MlpConfig
from workloads.mlp.model import Mlp, MlpWorkload

ROWS = 16


class _Uneven(MlpWorkload):
    """A row of the digit 9 weighs ten times as much as one of the digit 0."""

    def loss(self, model: Mlp, batch: Batch, watch: Watch) -> ByRow:
        values, _ = super().loss(model, batch, watch)
        weights = (batch["y"] + 1).astype(jnp.float32)
        return ByRow(values * weights, weights)


def _config(**fields: Any) -> MlpConfig:
    return MlpConfig(
        hidden=(8,), batch=ROWS, steps=4, warmup=0.0, lr=0.01, clip=0.0, tensor=1, **fields
    )


def _rows(step: int) -> Rows:
    numbers = np.arange(step * ROWS, (step + 1) * ROWS)
    return MlpWorkload(_config()).dataset().train.take(numbers)


def _trained(
    workload: MlpWorkload, batches: list[Rows], devices: int = 4
) -> tuple[Any, list[StepOutcome]]:
    """Return the model after a step with each batch, and what the steps gave."""
    program = Program(workload, mesh_of(workload.config, jax.devices()[:devices]))
    step = program.compile(program.batch(batches[0]), program.in_haste)
    state, good = program.first_state(), program.all_good()
    outcomes: list[StepOutcome] = []
    for rows in batches:
        state, outcome = step(state, good, program.batch(rows))
        good = outcome.good
        outcomes.append(jax.device_get(outcome))
    return jax.device_get(state[MODEL]), outcomes


def test_parts_of_any_number_give_the_losses_of_the_whole_though_rows_weigh_differently() -> None:
    batches = [_rows(step) for step in range(3)]
    whole, expected = _trained(_Uneven(_config()), batches)
    for fields in ({"accumulate": 2}, {"accumulate": 4}, {"accumulate": 2, "fsdp": 2}):
        model, outcomes = _trained(_Uneven(_config(**fields)), batches)
        for outcome, same in zip(outcomes, expected, strict=True):
            np.testing.assert_allclose(outcome.loss, same.loss, rtol=0, atol=1e-6)
            np.testing.assert_allclose(outcome.gradient_norm, same.gradient_norm, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), model, whole)


class _AsOptax(MlpWorkload):
    """Optax adds up the gradients of four steps."""

    def optimizer(self) -> optax.GradientTransformation:
        every = optax.MultiSteps(super().optimizer(), every_k_schedule=4)
        return optax.GradientTransformation(every.init, every.update)


def test_parts_of_equal_weight_give_what_optax_adds_up_over_steps() -> None:
    rows = _rows(0)
    quarters = [{name: array[at : at + 4] for name, array in rows.items()} for at in (0, 4, 8, 12)]
    small = _config().model_copy(update={"batch": 4})
    expected, losses = _trained(_AsOptax(small), quarters, devices=1)
    model, [outcome] = _trained(MlpWorkload(_config(accumulate=4)), [rows], devices=1)
    mean = np.mean([float(part.loss) for part in losses])
    np.testing.assert_allclose(outcome.loss, mean, rtol=0, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), model, expected)


def test_a_bad_row_is_named_by_its_place_in_the_whole_batch() -> None:
    rows = _rows(0)
    rows["x"][13] = np.nan
    _, [outcome] = _trained(MlpWorkload(_config(accumulate=2)), [rows])
    assert np.flatnonzero(~outcome.forward).tolist() == [13]
    assert not outcome.good


def test_parts_that_do_not_divide_are_refused_with_a_batch_that_does() -> None:
    with pytest.raises(ConfigError, match="4 devices, 3 times each: --batch=24, or"):
        mesh_of(_config(accumulate=3), jax.devices()[:4])
