"""The mesh that a checked function is given: `data=1,fsdp=-1`, the sizes of its axes; -1 is what the others leave.

By default it has the axes `data`, one for each slice, and `fsdp`, the devices of a slice. Of several slices the first
axis runs over the slices.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from workloads.errors import ConfigError


def sizes(text: str, devices: int, slices: int) -> dict[str, int]:
    """Return the sizes of the axes for so many devices in so many slices. Raises ConfigError."""
    axes: dict[str, int] = {}
    for part in (text or f"data={slices},fsdp=-1").split(","):
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(-1|[1-9][0-9]{0,4})\s*", part)
        if match is None or match[1] in axes:
            raise ConfigError(
                f"mesh {text[:60]}: must be different names of axes with their sizes, such as data=1,fsdp=-1"
            )
        axes[match[1]] = int(match[2])
    open_axes = [name for name, size in axes.items() if size < 0]
    stated = math.prod(size for size in axes.values() if size > 0)
    if len(open_axes) > 1:
        raise ConfigError(f"mesh {text}: only one axis can be -1")
    if devices % stated or (not open_axes and stated != devices):
        raise ConfigError(
            f"mesh {text}: {stated} devices do not go with the {devices} of the slice"
        )
    for name in open_axes:
        axes[name] = devices // stated
    first = next(iter(axes))
    if axes[first] % slices:
        raise ConfigError(
            f"mesh {text}: the first axis runs over the {slices} slices, which do not divide {first}={axes[first]}"
        )
    return axes


def mesh_of(text: str, devices: Sequence[Any], slices: int) -> Any:
    """Return the mesh of described devices. Raises ConfigError."""
    import numpy as np
    from jax.experimental import mesh_utils
    from jax.sharding import AxisType, Mesh

    axes = sizes(text, len(devices), slices)
    first, *others = axes.values()
    within = (first // slices, *others)
    numbers = sorted({slice_of(device) for device in devices})
    parts = [
        mesh_utils.create_device_mesh(
            within,
            [device for device in devices if slice_of(device) == number],
            allow_split_physical_axes=True,
        )
        for number in numbers
    ]
    return Mesh(np.concatenate(parts), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def slice_of(device: Any) -> int:
    """Return the number of a device's slice; 0 for the devices of a single one, which do not say it."""
    return getattr(device, "slice_index", None) or 0
