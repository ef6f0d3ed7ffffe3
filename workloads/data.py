"""Data sets as arrays in memory, and an endless order over their rows that can be continued anywhere.

Grain's ElasticIterator keeps the position: one number, the same on every host, which goes into the
checkpoint. It hands out *positions* in the endless order; `Order` turns them into rows, and the rows
are gathered in one go. (Asking Grain for each row costs 40 us a row, which is more than a training
step of a small model.)
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import gzip
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.config import ConfigError

Rows = dict[str, NDArray[np.generic]]  #: arrays with the same first dimension

#: Of the split and of the generated rows. They are the data set: a run's own seed does not change them.
_DATASET_SEED = 20240229


@dataclass(frozen=True)
class Dataset:
    """Rows to train on and rows to test on, never the same."""

    train: Rows
    test: Rows


def digits() -> Dataset:
    """1,797 scanned digits: `x` 64 numbers from 0 to 1, `y` the digit. A fifth of them is for the test.

    Reads the file in scikit-learn's package without importing scikit-learn, which takes a second.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ConfigError("dataset=digits needs the package scikit-learn, which is not installed")
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    return _split({"x": table[:, :-1] / 16, "y": table[:, -1].astype(np.int32)}, test=360)


def synthetic(rows: int = 10_240, inputs: int = 784, classes: int = 10) -> Dataset:
    """Generated rows in the shape of MNIST: a random pattern for each class, under heavy noise."""
    random = np.random.default_rng(_DATASET_SEED)
    patterns = random.standard_normal((classes, inputs), dtype=np.float32)
    y = random.integers(0, classes, rows, dtype=np.int32)
    noise = random.standard_normal((rows, inputs), dtype=np.float32)
    return _split({"x": 0.2 * patterns[y] + noise, "y": y}, test=rows // 5)


def _split(rows: Rows, test: int) -> Dataset:
    order = np.random.default_rng(_DATASET_SEED).permutation(_count(rows))
    return Dataset(take(rows, order[test:]), take(rows, order[:test]))


def take(rows: Rows, which: NDArray[np.integer]) -> Rows:
    """Those rows of every array."""
    return {name: array[which] for name, array in rows.items()}


def _count(rows: Rows) -> int:
    return len(next(iter(rows.values())))


class Order:
    """The rows 0..count-1 over and over, in a new order each time. Any position can be asked for."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._seed = seed
        self._orders: dict[int, NDArray[np.integer]] = {}

    def rows(self, positions: NDArray[np.integer]) -> NDArray[np.integer]:
        """The rows at these positions of the endless order."""
        epochs, places = np.divmod(positions, self._count)
        found = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            found[of_epoch] = self._order(epoch)[places[of_epoch]]
        return found

    def _order(self, epoch: int) -> NDArray[np.integer]:
        if epoch not in self._orders:
            random = np.random.default_rng((self._seed, epoch))
            self._orders = {
                **{e: o for e, o in self._orders.items() if e == epoch - 1},
                epoch: random.permutation(self._count),
            }
        return self._orders[epoch]


class Feed:
    """This host's rows of one batch after another, with a position that can be saved and restored."""

    def __init__(self, rows: Rows, batch: int, seed: int, host: int, hosts: int) -> None:
        import grain

        self._rows = rows
        self._share = batch // hosts
        self._order = Order(_count(rows), seed)
        self._positions = iter(
            grain.experimental.ElasticIterator(
                grain.MapDataset.range(sys.maxsize),
                batch,
                grain.sharding.ShardOptions(host, hosts),
                # no reader threads: there is nothing to wait for
                read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
            )
        )

    def __next__(self) -> Rows:
        return take(self._rows, self._order.rows(next(self._positions)))

    def example(self) -> Rows:
        """Rows in the shape of a batch, to compile with; the position stays where it is."""
        return take(self._rows, np.zeros(self._share, dtype=np.int64))

    @property
    def state(self) -> dict[str, int]:
        """Where the next batch begins; the same on every host, and for any number of hosts."""
        return self._positions.get_state()

    @state.setter
    def state(self, state: dict[str, int]) -> None:
        self._positions.set_state(state)
