"""Gradients are clipped by their global norm, as optax defines it."""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from typing import Any

import jax
import numpy as np
import optax
import pytest

from workloads.frame.mesh import mesh_of
from workloads.frame.program import MODEL, Program
from workloads.mlp import MlpConfig
from workloads.mlp.model import MlpWorkload


class _Descent(MlpWorkload):
    """The update is the gradient."""

    def optimizer(self) -> optax.GradientTransformation:
        return optax.sgd(1.0)


def update(clip: float) -> tuple[Any, float]:
    """Return what the first step subtracts from the parameters, and the norm that it reports."""
    config = MlpConfig(hidden=(8,), batch=16, clip=clip)
    workload = _Descent(config)
    program = Program(workload, mesh_of(config, jax.devices()[:1]))
    batch = program.batch(workload.dataset().train.take(np.arange(16)))
    before = jax.device_get(program.first_state()[MODEL])
    step = program.compile(batch, program.in_haste)
    state, outcome = step(program.first_state(), program.all_good(), batch)
    taken = jax.tree.map(lambda old, new: old - np.asarray(new), before, state[MODEL])
    return taken, float(outcome.gradient_norm)


@pytest.mark.slow
def test_an_update_is_no_longer_than_the_clip_and_points_where_it_did() -> None:
    gradient, norm = update(0)
    assert norm == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-5)
    for limit in (norm / 4, norm * 4):
        clipped, reported = update(limit)
        expected, _ = optax.clip_by_global_norm(limit).update(gradient, optax.EmptyState())
        assert reported == norm, "the norm is told as it was before clipping"
        assert float(optax.tree.norm(clipped)) <= limit * 1.00001
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), clipped, expected)
