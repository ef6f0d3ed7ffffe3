"""The step of a bundled program, as the function that a check calls."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import math
from typing import Any

import jax
from flax import nnx

from workloads.check.meshes import slice_of
from workloads.frame.mesh import mesh_of
from workloads.frame.program import MODEL, Program


def step(mesh: Any, *, workload: str, record: str, config: dict[str, Any]) -> Any:
    """Return the step of a workload, both named `module:Class`, with these settings. Raises ConfigError."""
    settings = _named(record).model_validate(config)
    program_of = _named(workload)(settings)
    devices = list(mesh.devices.flat)
    slices = len({slice_of(device) for device in devices})
    program = Program(program_of, mesh_of(settings, devices, slices))
    rows = {
        name: jax.ShapeDtypeStruct((settings.batch, *row.shape), row.dtype)
        for name, row in program_of.row_layout().items()
    }
    facts = {
        "rows": settings.batch,
        "tokens": settings.batch * program_of.tokens_per_row,
        "parameters": _parameters(program.layout),
        "model_flops": settings.batch * program_of.flops_per_row,
    }
    return program.step(), program.arguments(rows), facts


def _parameters(layout: Any) -> int:
    variables = jax.tree.leaves(layout[MODEL], is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    return sum(math.prod(v.shape) for v in variables if isinstance(v, nnx.Param))


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
