"""Carries out the fault that `contract/faults.py` describes, on this host and inside its steps.

A bad number is put into what a device is given, not into the compiled step, which is thus the one that
trains; a host without a fault pays nothing.
"""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from workloads.contract import Fault
from workloads.data.rows import Rows
from workloads.frame.config import ConfigError
from workloads.frame.workload import Batch

#: A number of a class or token that no model has.
_NO_ROW = np.int32(np.iinfo(np.int32).max)


class Injection:
    """A fault of this host. With None it does nothing."""

    def __init__(self, fault: Fault | None) -> None:
        """Raises ConfigError if the fault names a device that this host lacks."""
        if fault and fault.device >= jax.local_device_count():
            raise ConfigError(
                f"TPUJOB_FAULT: device={fault.device}, but this host has devices 0 to "
                f"{jax.local_device_count() - 1}"
            )
        self._fault = fault
        self._spent = False

    def rows(self, step: int, rows: Rows) -> Rows:
        """This host's rows of that step, about to be computed. Does not return if the host is to fail."""
        fault = self._fault
        if not fault or fault.kind == "preflight" or step < fault.step:
            return rows
        if fault.kind == "hang":
            threading.Event().wait()
        if fault.kind == "oom":
            raise MemoryError(f"injected fault: no memory is left on this host at step {step}")
        if fault.kind == "exit":
            _end(step, fault.code)
        if fault.where != "data" or self._over(step):
            return rows
        count = len(next(iter(rows.values())))
        row = fault.device * count // jax.local_device_count()
        _check_spoilable(rows)
        return {name: _with_bad_row(array, row) for name, array in rows.items()}

    def batch(self, step: int, batch: Batch) -> Batch:
        """The batch as the devices of this host are to see it. Call it once for each time that it is computed."""
        fault = self._fault
        if not fault or fault.kind != "nan" or fault.where == "data" or self._over(step):
            return batch
        self._spent = True
        _check_spoilable(batch)
        devices = jax.local_devices()
        bad = set(devices if fault.where == "model" else devices[fault.device : fault.device + 1])
        return {name: _replace(array, bad) for name, array in batch.items()}

    def _over(self, step: int) -> bool:
        """Whether the fault is not yet due, or was transient and has passed."""
        fault = self._fault
        if not fault or step < fault.step:
            return True
        return fault.transient and (self._spent or step > fault.step)


def _replace(array: jax.Array, bad: set[Any]) -> jax.Array:
    """The same array, but these devices hold numbers that nothing can be computed from."""
    pieces = [
        jax.device_put(_bad_like(np.asarray(shard.data)), shard.device)
        if shard.device in bad
        else shard.data
        for shard in array.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, pieces)


def _with_bad_row(array: NDArray[Any], row: int) -> NDArray[Any]:
    array = array.copy()
    array[row] = _bad_like(array[row])
    return array


def _bad_like(array: NDArray[Any]) -> NDArray[Any]:
    """NaN; or, as whole numbers have none, one that no table of a model has a row for. Types that are too small for
    such a number stay as they are."""
    if not _spoilable(array):
        return array
    return np.full_like(array, np.nan if jnp.issubdtype(array.dtype, jnp.inexact) else _NO_ROW)


def _check_spoilable(arrays: Mapping[str, Any]) -> None:
    if not any(map(_spoilable, arrays.values())):
        types = ", ".join(f"{name} is {array.dtype}" for name, array in arrays.items())
        raise ConfigError(f"TPUJOB_FAULT: rows cannot hold a bad number: {types}")


def _spoilable(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact) or (
        jnp.issubdtype(array.dtype, jnp.integer) and array.dtype.itemsize >= _NO_ROW.itemsize
    )


def _end(step: int, code: int) -> NoReturn:
    sys.stderr.write(f"injected fault: ending with {code} at step {step}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
