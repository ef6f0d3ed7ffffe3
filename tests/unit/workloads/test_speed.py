"""The parts of `tests/bench/speed` with a model of nothing: what is counted, what is measured, what is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.bench.nanodo.model import cross_entropy
from tests.bench.speed import __main__ as speed
from tests.bench.speed import on_jax
from tests.bench.speed.rows import LLAMA, ROWS, TINY, Row
from tests.support.paths import ROOT


def test_a_token_of_the_llama_costs_what_its_weights_and_half_its_scores_cost() -> None:
    assert LLAMA.flops_per_token == pytest.approx(7.82e9, rel=0.001)


@pytest.mark.slow
def test_a_step_with_every_lever_at_once_is_measured() -> None:
    """FP8 layers, bfloat16 weights with a float32 master, the loss by its definition, a wait for each step."""
    levers = {"fp8": True, "master": True, "plain_loss": True, "wait": True, "attention": "plain"}
    found = on_jax.llama(TINY, 2, 2, **levers)
    assert found["seconds"] > 0


def test_matrix_products_have_a_rate_for_each_second() -> None:
    rates = on_jax.gemm(0.05, size=64)
    assert rates
    assert all(rate > 1e6 for rate in rates)


def test_an_fp8_product_and_its_gradients_are_those_of_the_definition_to_two_digits() -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(3, 8, 64)), jnp.float32)
    weight = jnp.asarray(rng.normal(size=(64, 32)), jnp.float32)

    def by(product):
        return jax.jit(
            jax.value_and_grad(lambda x, w: jnp.sin(product(x, w)).mean(), argnums=(0, 1))
        )

    (_, exact), (_, found) = by(jnp.matmul)(x, weight), by(on_jax.fp8_product)(x, weight)
    for one, other in zip(exact, found, strict=True):
        alike = jnp.vdot(one, other) / jnp.linalg.norm(one) / jnp.linalg.norm(other)
        assert alike > 0.95, f"the gradients point elsewhere: {alike}"
    plain, small = x @ weight, on_jax.fp8_product(x, weight)
    assert jnp.abs(small - plain).max() < 0.1 * jnp.abs(plain).max()


def test_bfloat16_weights_with_a_master_end_where_float32_weights_do() -> None:
    inner = optax.adamw(1e-3)
    small = {"w": jnp.linspace(-1, 1, 64, dtype=jnp.bfloat16)}
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), small)
    mixed = on_jax.with_master(inner)
    mixed_state, state = mixed.init(small), inner.init(wide)
    for _ in range(20):  # each step is below what bfloat16 resolves near 1
        gradient = {"w": jnp.ones(64)}
        updates, state = inner.update(gradient, state, wide)
        wide = optax.apply_updates(wide, updates)
        updates, mixed_state = mixed.update(gradient, mixed_state, small)
        small = optax.apply_updates(small, updates)
    assert small["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(small["w"], wide["w"].astype(jnp.bfloat16))


def test_the_loss_written_by_hand_has_the_values_and_gradients_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    x, words = (jnp.asarray(rng.normal(size=(n, 16)), jnp.float32) for n in (12, 40))
    targets = jnp.asarray(rng.integers(0, 40, 12))

    def definition(x, words, targets):
        return optax.softmax_cross_entropy_with_integer_labels(x @ words.T, targets)

    def of(loss):
        return jax.jit(jax.value_and_grad(lambda x, w: (loss(x, w, targets) ** 2).sum(), (0, 1)))

    found, right = of(cross_entropy)(x, words), of(definition)(x, words)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_fp8_is_never_set_against_the_peak_of_bfloat16() -> None:
    figures = {
        "device": "NVIDIA H200",
        "rate": 8e4,
        "unit": "tokens/s",
        "seconds": 0.2,
        "flops": 6e14,
    }
    assert "60.7% of 989" in speed.shown({"row": "JAX, 8 rows", **figures})
    fp8 = next(row.name for row in ROWS if row.changes.get("fp8"))
    assert "%" not in speed.shown({"row": fp8, **figures})


def test_a_row_that_cannot_be_measured_says_why_and_the_next_one_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(row: Row, *, tiny: bool):
        if row.changes.get("batch") != 16:
            raise ModuleNotFoundError("No module named 'torch'")
        return "cpu", {"flops": 1.0}

    monkeypatch.setattr(speed, "_one", one)
    speed._measure("torch", tiny=True)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record.get("error") for record in records] == [
        "ModuleNotFoundError: No module named 'torch'", None, "ModuleNotFoundError: No module named 'torch'", None,
    ]  # fmt: skip


@pytest.mark.slow
def test_the_script_keeps_its_time_and_tells_what_it_left_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.speed", "--tiny", "--minutes=0.01"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("left out: the time is up") > 5
    assert len((tmp_path / "run/speed.jsonl").read_text().splitlines()) > 5
