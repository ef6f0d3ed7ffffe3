"""Checksums of a state, bit by bit, computed where its arrays lie.

Of each array two sums modulo 2^32 over its numbers, each mixed with its place in the whole array: the same however
the array is split, in whatever order it is summed. One changed number always changes the first sum; other changes
go unseen once in 2^64. In the same pass over the memory each device counts what is not finite.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import hashlib
import json
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

#: Odd multipliers: that of murmur3's last step, and 2^32 over the golden ratio.
_MIX, _GOLDEN = 0x85EBCA6B, 0x9E3779B1


class Array(NamedTuple):
    """The type, shape and checksum of an array in a checkpoint."""

    kind: str  #: its type and shape, see `kinds`
    sums: tuple[int, int]


class Found(NamedTuple):
    """The checksums of a state, and which parts are finite, computed by the devices."""

    arrays: dict[str, Array]  #: by the path in the state; of the first copy
    unlike: frozenset[str]  #: arrays of which a device has a copy with other bits
    #: [devices in the order of the mesh, arrays of floats]: what the device holds of the array is finite
    sound: NDArray[np.bool_]


class Checksums:
    """Computes checksums for states of this layout: `jax.ShapeDtypeStruct`s with named shardings on one mesh."""

    def __init__(self, layout: Any) -> None:
        self._leaves = _by_path(layout)
        self._places = tuple((leaf.shape, leaf.sharding.spec) for leaf in self._leaves.values())
        self._mesh = next(iter(self._leaves.values())).sharding.mesh

    def __call__(self, state: Any) -> jax.Array:
        """Return sums and counts by device, for `read`. Does not wait for the devices."""
        return _by_device(jax.tree.leaves(state), self._places, self._mesh)

    def read(self, by_device: jax.Array) -> Found:
        """Wait for the devices and return the results, the same on all hosts."""
        parts = np.asarray(by_device)  # [*mesh, leaves, 3]
        arrays: dict[str, Array] = {}
        unlike: set[str] = set()
        for number, (name, leaf) in enumerate(self._leaves.items()):
            split = tuple(self._mesh.axis_names.index(axis) for axis in _axes(leaf.sharding.spec))
            copies = parts[..., number, :2].sum(axis=split, dtype=np.uint32).reshape(-1, 2)
            sums = int(copies[0, 0]), int(copies[0, 1])
            arrays[name] = Array(_kind(leaf.dtype, leaf.shape), sums)
            if (copies != copies[0]).any():
                unlike.add(name)
        floats = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in self._leaves.values()]
        sound = parts[..., 2].reshape(self._mesh.size, -1)[:, floats] == 0
        return Found(arrays, frozenset(unlike), sound)


def kinds(layout: Any) -> dict[str, str]:
    """Return type and shape of each array of a state by its path, such as `float32[64, 32]`."""
    return {path: _kind(leaf.dtype, leaf.shape) for path, leaf in _by_path(layout).items()}


def of_text(value: Any) -> str:
    """Return a checksum of the value as JSON stores it."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _by_path(layout: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(layout)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _kind(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"


@partial(jax.jit, static_argnames=("places", "mesh"))
def _by_device(
    leaves: list[jax.Array], places: tuple[tuple[tuple[int, ...], PartitionSpec], ...], mesh: Mesh
) -> jax.Array:
    """uint32 [*mesh, leaves, 3], the same on all devices, for leaves with these shapes and specs."""

    def own(parts: list[jax.Array]) -> jax.Array:
        sums = [_sums(part, *where) for part, where in zip(parts, places, strict=True)]
        return jnp.stack(sums)[(None,) * len(mesh.shape)]

    specs = [spec for _, spec in places]
    per_device = PartitionSpec(*mesh.axis_names)
    compute = jax.shard_map(
        own, mesh=mesh, in_specs=(specs,), out_specs=per_device, check_vma=False
    )
    return jax.lax.with_sharding_constraint(compute(leaves), NamedSharding(mesh, PartitionSpec()))


def _sums(part: jax.Array, whole: tuple[int, ...], spec: PartitionSpec) -> jax.Array:
    """uint32 [3]: both sums over a device's part of an array of that shape, and how many of its numbers are not
    finite."""
    mixed = _places(part.shape, whole, spec) * jnp.uint32(_GOLDEN)
    for word in _words(part):
        mixed += word
        mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(_MIX)
        mixed ^= mixed >> 13
    bad = (~jnp.isfinite(part)).astype(jnp.uint32)
    # one reduction of three operands: on CPU five times as fast as three
    operands = mixed, mixed * (mixed >> 7 | 1), bad
    zeros = (jnp.uint32(0),) * 3
    every = tuple(range(part.ndim))
    return jnp.stack(jax.lax.reduce(operands, zeros, _added, every))


def _added(left: tuple[jax.Array, ...], right: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _words(part: jax.Array) -> list[jax.Array]:
    """The bits of each number, as one to four arrays of uint32."""
    if jnp.iscomplexobj(part):
        return [*_words(part.real), *_words(part.imag)]
    if part.dtype == jnp.bool_:
        return [part.astype(jnp.uint32)]
    if part.dtype.itemsize == 8:
        halves = jax.lax.bitcast_convert_type(part, jnp.uint32)
        return [halves[..., 0], halves[..., 1]]
    unsigned = jnp.dtype(f"uint{8 * part.dtype.itemsize}")
    return [jax.lax.bitcast_convert_type(part, unsigned).astype(jnp.uint32)]


def _places(shape: tuple[int, ...], whole: tuple[int, ...], spec: PartitionSpec) -> jax.Array:
    """uint32 of that shape: where the numbers of this device's part are in the whole array, modulo 2^32."""
    places = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        split = _axes(spec[axis : axis + 1])
        first = jax.lax.axis_index(split).astype(jnp.uint32) * jnp.uint32(size) if split else 0
        stride = math.prod(whole[axis + 1 :]) % 2**32
        places += (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) + first) * jnp.uint32(stride)
    return places


def _axes(spec: tuple[Any, ...] | PartitionSpec) -> tuple[str, ...]:
    """The axes of the mesh that split these dimensions."""
    return tuple(jax.tree.leaves(tuple(spec)))
