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
from typing import Any, NoReturn

import jax
import numpy as np
from numpy.typing import NDArray

from workloads.contract import Fault
from workloads.data.rows import Rows
from workloads.frame.config import ConfigError

Batch = dict[str, jax.Array]


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
        return {name: _with_bad_row(array, row) for name, array in rows.items()}

    def batch(self, step: int, batch: Batch) -> Batch:
        """The batch as the devices of this host are to see it. Call it once for each time that it is computed."""
        fault = self._fault
        if not fault or fault.kind != "nan" or fault.where == "data" or self._over(step):
            return batch
        self._spent = True
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
    """NaN; or, as whole numbers have none, the largest, which no table of a model has a row for."""
    value = np.nan if np.issubdtype(array.dtype, np.inexact) else np.iinfo(array.dtype).max
    return np.full_like(array, value)


def _end(step: int, code: int) -> NoReturn:
    sys.stderr.write(f"injected fault: ending with {code} at step {step}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
