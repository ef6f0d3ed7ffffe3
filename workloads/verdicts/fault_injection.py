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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tpujob.contract import Fault
from workloads.data.rows import Rows
from workloads.frame.config import ConfigError
from workloads.frame.workload import Batch

#: A number of a class or token that no model has.
_NO_ROW = np.int32(np.iinfo(np.int32).max)


class Injection:
    """Injects a fault on this host; with None, does nothing."""

    def __init__(self, fault: Fault | None) -> None:
        """Raise ConfigError if the fault names a device that this host lacks."""
        devices = jax.local_device_count()
        if fault and fault.device >= devices:
            raise ConfigError(
                f"TPUJOB_FAULT: device={fault.device}, but this host has devices 0 to {devices - 1}"
            )
        self._fault = fault if fault and fault.kind != "preflight" else None
        self._spent = False

    def rows(self, step: int, rows: Rows) -> Rows:
        """Return this host's rows of that step, with the fault of a row. Does not return if the host is to fail."""
        fault = self._fault
        if not fault or step < fault.step:
            return rows
        if fault.kind == "hang":
            threading.Event().wait()
        if fault.kind == "oom":
            raise MemoryError(f"injected fault: no memory is left on this host at step {step}")
        if fault.kind == "exit":
            sys.stderr.write(f"injected fault: ending with {fault.code} at step {step}\n")
            sys.stdout.flush()
            os._exit(fault.code)
        if not self._is_due(step):
            return rows
        if not any(_can_be_bad(array.dtype) for array in rows.values()):
            types = ", ".join(f"{name} is {array.dtype}" for name, array in rows.items())
            raise ConfigError(f"TPUJOB_FAULT: rows cannot hold a bad number: {types}")
        if fault.where != "data":
            return rows
        row = fault.device * len(next(iter(rows.values()))) // jax.local_device_count()
        spoiled = {name: array.copy() for name, array in rows.items()}
        for array in spoiled.values():
            array[row] = _bad_like(array[row])
        return spoiled

    def batch(self, step: int, batch: Batch) -> Batch:
        """Return the batch with the fault of a device or the model. Call it once before each computation of the
        batch."""
        fault = self._fault
        if not fault or fault.where == "data" or not self._is_due(step):
            return batch
        self._spent = True
        devices = jax.local_devices()
        bad = devices if fault.where == "model" else [devices[fault.device]]
        return {name: _replaced(array, bad) for name, array in batch.items()}

    def _is_due(self, step: int) -> bool:
        """Return whether a bad number is due; a transient fault is due only once."""
        fault = self._fault
        if not fault or fault.kind != "nan" or step < fault.step:
            return False
        return not (fault.transient and (self._spent or step > fault.step))


def _replaced(array: jax.Array, bad: list[jax.Device]) -> jax.Array:
    """Return the array with unusable numbers on these devices."""
    pieces = [
        jax.device_put(_bad_like(np.asarray(shard.data)), shard.device)
        if shard.device in bad
        else shard.data
        for shard in array.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, pieces)


def _bad_like(array: NDArray[Any]) -> NDArray[Any]:
    """Return NaNs; for integers, a number that no table of a model has a row for. Arrays of smaller types are returned
    unchanged."""
    if not _can_be_bad(array.dtype):
        return array
    return np.full_like(array, np.nan if jnp.issubdtype(array.dtype, jnp.inexact) else _NO_ROW)


def _can_be_bad(dtype: Any) -> bool:
    is_large = jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize >= _NO_ROW.itemsize
    return is_large or jnp.issubdtype(dtype, jnp.inexact)
