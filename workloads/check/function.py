"""The function that a check calls, and what it must return.

`function(mesh)` returns a step that is jitted and the step's arguments, none of which has a value:

    def step(mesh):
        ...
        return jax.jit(train_step, donate_argnums=0), (state, batch), {"tokens": 2**20}

State and batch are `jax.ShapeDtypeStruct`s with a sharding on the mesh, such as those of `jax.eval_shape`. The third
value may be left out; its keys are those of `FACTS`. A function may arrange the devices of `mesh` in a mesh of its own.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from workloads.check.errors import first_line
from workloads.errors import ConfigError

#: What a function may say of a step over all devices, beside the step: tokens, rows, parameters, and the operations of
#: the model (MFU's numerator), where they are not to be counted from the step.
FACTS = ("tokens", "rows", "parameters", "model_flops")
#: bytes of an array up to which it needs no sharding: each device has a copy
_SMALL = 1024


class Step(NamedTuple):
    function: Any  #: jitted
    arguments: tuple[Any, ...]
    mesh: Mesh  #: on which the arguments lie
    tokens: int = 0
    rows: int = 0
    parameters: int = 0
    model_flops: float = 0.0


def named(text: str, folder: str) -> Callable[..., Any]:
    """Return the function `module:name` or `file.py:name`, imported from `folder`. Raises ConfigError."""
    place, _, name = text.rpartition(":")
    try:
        module = _imported(place, folder)
    except Exception as error:
        traceback.print_exc()
        raise ConfigError(f"{place} cannot be imported: {told(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        has = f"it has {', '.join(own[:8])}" if own else "it has no functions"
        raise ConfigError(f"{place} has no function {name}: {has}")
    return function


def step_of(
    function: Callable[..., Any], mesh: Mesh, arguments: Mapping[str, Any], name: str
) -> Step:
    """Call the function, and return its step. Raises ConfigError with one line for every way in which that fails."""
    try:
        returned = function(mesh, **arguments)
    except ConfigError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise ConfigError(f"{name} failed: {told(error)}") from error
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise ConfigError(
            f"{name} must return (jitted step, arguments), or with a dict of facts as a third; it returned "
            f"{_kind(returned)}"
        )
    step, given, facts = (*returned, {})[:3]
    if not callable(getattr(step, "trace", None)):
        raise ConfigError(f"{name}: the step is {_kind(step)}, and must be what jax.jit returns")
    given = given if isinstance(given, tuple) else (given,)
    return Step(step, given, _mesh_of(given, mesh, name), **_checked(facts, name))


def told(error: BaseException) -> str:
    """Return an error in one line, with the last line of the program that it came from."""
    others = str(Path(__file__).parent), str(Path(traceback.__file__).parent), "<"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith(others)
    ]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(str(error))}{where}"


def _imported(place: str, folder: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    file = Path(folder, place)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    sys.path.insert(0, str(file.parent))  # as if it were run
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _mesh_of(arguments: tuple[Any, ...], mesh: Mesh, name: str) -> Mesh:
    """Return the mesh on which the arguments lie. Raises ConfigError for one that has a value, or is elsewhere."""
    wanted = set(mesh.devices.flat)
    meshes: list[Mesh] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(arguments):
        if isinstance(leaf, (bool, int, float)):
            continue
        where = f"{name}: argument {jax.tree_util.keystr(path)}"
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ConfigError(
                f"{where} is {_kind(leaf)}, no array: close over it, or make it static"
            )
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            raise ConfigError(
                f"{where} has a value ({_kind(leaf)}): give its jax.ShapeDtypeStruct, as jax.eval_shape does"
            )
        sharding = leaf.sharding
        if sharding is None:
            size = math.prod(leaf.shape) * leaf.dtype.itemsize
            if size > _SMALL:
                raise ConfigError(
                    f"{where}, {leaf.dtype}{list(leaf.shape)}, has no sharding: each device would have a copy; give "
                    "jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))"
                )
            continue
        abstract = isinstance(getattr(sharding, "mesh", None), AbstractMesh)
        if abstract or set(sharding.device_set) != wanted:
            raise ConfigError(
                f"{where} is not on the {len(wanted)} devices of the mesh: {sharding}"
            )
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            meshes.append(sharding.mesh)
    if not meshes:
        raise ConfigError(
            f"{name}: no argument has a sharding on the mesh, so there is nothing to compile for it"
        )
    return meshes[0]


def _checked(facts: object, name: str) -> dict[str, Any]:
    if not isinstance(facts, Mapping):
        raise ConfigError(
            f"{name}: the third value is {_kind(facts)}, and must be a dict with {', '.join(FACTS)}"
        )
    checked: dict[str, Any] = {}
    for key, value in cast("Mapping[object, object]", facts).items():
        if key not in FACTS:
            raise ConfigError(
                f"{name}: no such fact: {str(key)[:40]!r}; there are {', '.join(FACTS)}"
            )
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= cast("float", value) < math.inf:
            raise ConfigError(f"{name}: {key} must be a number, not {_kind(value)}")
        checked[str(key)] = (
            float(cast("float", value)) if key == "model_flops" else int(cast("float", value))
        )
    return checked


def _kind(value: object) -> str:
    kind = type(value)
    size = f" of {len(cast('tuple[object, ...]', value))}" if isinstance(value, tuple) else ""
    return f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.") + size
