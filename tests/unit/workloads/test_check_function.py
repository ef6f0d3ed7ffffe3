"""The function that a check calls: what it may return, and the one line about anything else."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from workloads.check import meshes
from workloads.check.function import named, step_of
from workloads.errors import ConfigError

MESH = Mesh(
    np.array(jax.devices()[:1]).reshape(1, 1), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2
)
STEP = jax.jit(lambda state, scale: state * scale, donate_argnums=0)


def array(shape: tuple[int, ...] = (512, 4), mesh: Mesh | None = MESH) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, PartitionSpec("fsdp")) if mesh else None
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def returning(value: Any) -> Any:
    return step_of(lambda mesh: value, MESH, {}, "train.py:step")


def test_a_step_with_its_arguments_and_facts() -> None:
    step = returning((STEP, (array(), 2.0), {"tokens": 2048, "model_flops": 1e12}))
    assert (step.function, step.mesh, step.tokens, step.model_flops) == (STEP, MESH, 2048, 1e12)
    assert step.function.trace(*step.arguments).jaxpr
    assert returning((STEP, array())).arguments == (array(),), "one argument needs no tuple"


def test_a_program_may_arrange_the_devices_in_a_mesh_of_its_own() -> None:
    own = Mesh(MESH.devices.reshape(1), ("model",), axis_types=(AxisType.Auto,))
    on_own = jax.ShapeDtypeStruct(
        (512, 4), jnp.float32, sharding=NamedSharding(own, PartitionSpec("model"))
    )
    assert returning((STEP, (on_own, 1.0))).mesh == own


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "must return (jitted step, arguments), or with a dict of facts as a third; it returned NoneType"),
        ((STEP,), "it returned tuple of 1"),
        ((len, (array(),)), "the step is builtin_function_or_method, and must be what jax.jit returns"),
        ((STEP, (jnp.ones((512, 4)), 1.0)), "argument [0] has a value (jaxlib"),
        ((STEP, ({"w": np.ones(4)}, 1.0)), "argument [0]['w'] has a value (numpy.ndarray)"),
        ((STEP, (array(mesh=None), 1.0)), "argument [0], float32[512, 4], has no sharding"),
        ((STEP, (array((4,), None), 1.0)), "no argument has a sharding on the mesh"),
        ((STEP, (array(), "adam")), "argument [1] is str, no array"),
        ((STEP, (array(),), {"token": 3}), "no such fact: 'token'; there are tokens, rows, parameters, model_flops"),
        ((STEP, (array(),), {"tokens": "many"}), "tokens must be a number, not str"),
        ((STEP, (array(),), {"tokens": float("nan")}), "tokens must be a number"),
        ((STEP, (array(),), 7), "the third value is int"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_in_one_line(value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        returning(value)
    assert "train.py:step" in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_argument_on_other_devices_is_refused() -> None:
    wide = jax.sharding.AbstractMesh((4,), ("fsdp",))
    other = jax.ShapeDtypeStruct(
        (512, 4), jnp.float32, sharding=NamedSharding(wide, PartitionSpec("fsdp"))
    )
    with pytest.raises(ConfigError, match=r"argument \[0\] is not on the 1 devices of the mesh"):
        returning((STEP, (other, 1.0)))


def test_an_error_of_the_program_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import json\n\ndef step(mesh):\n    return json.loads('{')\n\nx = 1\n"
    )
    function = named("mine.py:step", str(tmp_path))
    with pytest.raises(ConfigError, match=r"mine.py:step failed: JSONDecodeError: .*\(mine.py:4\)"):
        step_of(function, MESH, {}, "mine.py:step")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'remta'"):
        step_of(function, MESH, {"remta": "full"}, "mine.py:step")
    with pytest.raises(ConfigError, match=r"mine.py has no function stop: it has step"):
        named("mine.py:stop", str(tmp_path))
    with pytest.raises(ConfigError, match=r"mine.py has no function x"):
        named("mine.py:x", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere.py:step", "nowhere.py cannot be imported: FileNotFoundError: there is no file"),
        ("broken.py:step", r"ModuleNotFoundError: No module named 'maxtxt' \(broken.py:1\)"),
        ("no_such_module:step", "no_such_module cannot be imported: ModuleNotFoundError"),
    ],
)  # fmt: skip
def test_a_program_that_cannot_be_imported_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import maxtxt\n")
    with pytest.raises(ConfigError, match=says):
        named(text, str(tmp_path))


@pytest.mark.parametrize(
    ("text", "devices", "slices", "axes"),
    [
        ("", 16, 1, {"data": 1, "fsdp": 16}),
        ("", 16, 2, {"data": 2, "fsdp": 8}),
        ("data=4,tensor=-1", 16, 2, {"data": 4, "tensor": 4}),
        (" a = 16 ", 16, 1, {"a": 16}),
    ],
)
def test_axes_of_a_mesh(text: str, devices: int, slices: int, axes: dict[str, int]) -> None:
    assert meshes.sizes(text, devices, slices) == axes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fsdp=3", "mesh fsdp=3: 3 devices do not go with the 8 of the slice"),
        ("fsdp=4", "4 devices do not go with the 8"),
        ("a=-1,b=-1", "only one axis can be -1"),
        ("a=2,a=4", "must be different names of axes with their sizes, such as data=1,fsdp=-1"),
        ("fsdp", "such as data=1"),
        ("tensor=1,data=8", "the first axis runs over the 2 slices, which do not divide tensor=1"),
    ],
)
def test_a_mesh_that_does_not_go_with_the_slices_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        meshes.sizes(text, 8, 2)
    assert says in str(refused.value)
