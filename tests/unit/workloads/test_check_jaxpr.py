"""The count of what a program asks for, against numbers worked out by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from workloads.check.jaxpr import count


def flops(function: Any, *arguments: Any) -> float:
    return count(jax.make_jaxpr(function)(*arguments)).flops


A = jnp.ones((8, 16))
B = jnp.ones((16, 4))
ONE = 2 * 8 * 16 * 4


def test_a_product_counts_two_operations_for_each_pair() -> None:
    assert flops(jnp.dot, A, B) == ONE


def test_a_batch_of_products_counts_each() -> None:
    assert flops(jax.vmap(jnp.dot, in_axes=(0, None)), jnp.ones((3, 8, 16)), B) == 3 * ONE


def test_a_scan_counts_its_body_as_often_as_it_runs() -> None:
    def body(x: Any, w: Any) -> Any:
        return x @ w, None

    w = jnp.ones((5, 16, 16))
    assert flops(lambda x, w: jax.lax.scan(body, x, w)[0], A, w) == 5 * 2 * 8 * 16 * 16


def test_gradients_take_twice_the_forward_pass_and_remat_once_more() -> None:
    def loss(w: Any) -> Any:
        return jnp.tanh(jnp.tanh(A @ w) @ w.T).sum()

    forward = flops(loss, B)
    # the gradient of the constant A is not asked for
    assert flops(jax.grad(loss), B) == 3 * forward - ONE
    assert flops(jax.grad(jax.checkpoint(loss)), B) == 4 * forward - ONE


def test_the_operations_of_the_model_are_the_same_with_and_without_remat() -> None:
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def loss(layer: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda x, w: (layer(x, w), None), A, weights)[0].sum()

    weights = jnp.ones((5, 16, 16))
    plain, again = (
        count(
            jax.make_jaxpr(jax.jit(jax.grad(loss, argnums=1), static_argnums=0), static_argnums=0)(
                f, weights
            )
        )
        for f in (layer, jax.checkpoint(layer))
    )
    assert plain.again_flops == 0
    assert again.again_flops == again.flops - plain.flops > 0
    assert again.model_flops == plain.model_flops


def test_of_a_condition_the_dearest_branch_counts() -> None:
    def either(x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ B, lambda x: (x @ B) @ B.T @ B, x)

    assert flops(either, A) == 3 * ONE


@pytest.mark.parametrize(("groups", "factor"), [(1, 1.0), (2, 0.5)])
def test_a_convolution_counts_its_window(groups: int, factor: float) -> None:
    x, k = jnp.ones((2, 4, 10, 10)), jnp.ones((6, 4 // groups, 3, 3))

    def convolved(x: Any, k: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", feature_group_count=groups)

    assert flops(convolved, x, k) == factor * 2 * (2 * 6 * 8 * 8) * (4 * 3 * 3)


def test_inside_a_shard_map_each_device_counts() -> None:
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    by_row = jax.shard_map(
        jnp.dot, mesh=mesh, in_specs=(jax.P("data"), jax.P()), out_specs=jax.P("data")
    )
    assert flops(by_row, A, B) == ONE
    wide = jax.sharding.AbstractMesh((4,), ("data",))
    by_row = jax.shard_map(
        jnp.dot, mesh=wide, in_specs=(jax.P("data"), jax.P()), out_specs=jax.P("data")
    )
    assert flops(by_row, A, B) == ONE, "four devices, a quarter of the rows each"
