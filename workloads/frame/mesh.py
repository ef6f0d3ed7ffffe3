"""The layout of arrays: one mesh of all devices, and the rules from names of axes to axes of the mesh.

dcn      the slices, joined by the data centre's network; each has all parameters
data     copies of the parameters within a slice; each has its own rows
fsdp     devices that have their own rows, and each a part of the parameters
tensor   devices that share rows, and each compute a part of the layers; always on one host
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, PartitionSpec

from workloads.frame.config import ConfigError, TrainConfig, least_batch

AXES = ("dcn", "data", "fsdp", "tensor")
#: Of the first dimension of a batch.
ROWS = ("dcn", "data", "fsdp")
#: What a model calls the dimensions of its parameters, and the axis of the mesh that splits them. Other names and
#: None: not split. The axes of the mesh may be named, too.
RULES = {"embed": "fsdp", "heads": "tensor", "mlp": "tensor", "vocab": "tensor"}


def mesh_of(config: TrainConfig, devices: Sequence[Any] | None = None, slices: int = 1) -> Mesh:
    """Return the mesh of these devices (default: all devices of all hosts). `slices`: their number of slices, if
    unknown.

    Raises ConfigError if the settings do not fit the devices: a `tensor` group that would span hosts, parts that
    do not divide, a batch that cannot be split.
    """
    by_slice = _by_slice(jax.devices() if devices is None else devices, slices)
    first, within = by_slice[0][0], len(by_slice[0])
    local = sum(device.process_index == first.process_index for device in by_slice[0])
    on_cpu = first.platform == "cpu"
    tensor = config.tensor or (local if on_cpu and config.fsdp == 1 else 1)
    if local % tensor:
        raise ConfigError(
            f"tensor={tensor} does not divide the {local} devices of a host, "
            "and devices that share rows must be on one host: give a --tensor that divides them"
        )
    fsdp = config.fsdp or within // tensor
    if within % (fsdp * tensor):
        raise ConfigError(
            f"fsdp={fsdp} x tensor={tensor} does not divide the {within} devices of a slice: "
            "--fsdp=0 takes all of them"
        )
    shape = (within // (fsdp * tensor), fsdp, tensor)
    units = len(by_slice) * shape[0] * fsdp
    parts = units * config.accumulate
    if config.batch % parts:
        times = f", {config.accumulate} times each" if config.accumulate > 1 else ""
        raise ConfigError(
            f"batch={config.batch} cannot be split over {units} devices{times}: "
            f"--batch={least_batch(config.batch, parts)}, or another multiple of {parts}"
        )
    arranged = np.stack([_within(shape, part) for part in by_slice])
    return Mesh(arranged, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def spec_of(names: Sequence[str | None] | None, shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
    """Return the split of an array whose dimensions have these names. An indivisible dimension is not split."""
    axes = [RULES.get(name, name) if name else None for name in names or ()]
    split = [axis if axis in mesh.shape and mesh.shape[axis] > 1 else None for axis in axes]
    divided = [
        axis if axis and size % mesh.shape[axis] == 0 else None
        for axis, size in zip(split, shape, strict=False)
    ]
    return PartitionSpec(*divided)


def platform() -> str:
    """Return the platform of the current mesh's devices: `tpu`, `gpu` or `cpu`; `cpu` without a mesh. The devices may
    be described ones of another machine, so this machine's devices do not count."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    name = device.platform if device else "cpu"
    return "gpu" if name == "cuda" else name


def row_parts(mesh: Mesh) -> int:
    """Return the number of units (a device, or several that share rows) that split a batch's rows."""
    return math.prod(mesh.shape[axis] for axis in ROWS)


def _by_slice(devices: Sequence[Any], slices: int) -> list[list[Any]]:
    """Return the devices of each slice. If devices do not name their slice, hosts are numbered through the slices; CPU
    devices always name slice 0."""
    hosts = len({device.process_index for device in devices})
    groups: dict[int, list[Any]] = defaultdict(list)
    for device in devices:
        number = device.process_index * slices // hosts
        slice_number = (
            number if device.platform == "cpu" else getattr(device, "slice_index", number)
        )
        groups[slice_number].append(device)
    if len({len(part) for part in groups.values()}) > 1:
        raise ConfigError(f"{len(devices)} devices are not {len(groups)} slices of the same size")
    return [groups[number] for number in sorted(groups)]


def _within(shape: tuple[int, int, int], devices: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return the devices of a slice in that shape: by their links, or host by host if a tensor group would span
    hosts."""
    grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    hosts = np.vectorize(lambda device: device.process_index)(grid)
    if (hosts == hosts[..., :1]).all():
        return grid
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    arranged = np.empty(len(ordered), dtype=object)
    arranged[:] = ordered
    return arranged.reshape(shape)
