"""Data sets of rows, and an endless order over their rows that can be continued anywhere.

Grain's ElasticIterator keeps the position: one number, the same on every host, which goes into the
checkpoint. It hands out *positions* in the endless order; `Order` turns them into rows, and the rows
are gathered in one go. (Asking Grain for each row costs 40 us a row, which is more than a training
step of a small model.) Sets that do not fit into memory are in `packed.py`.
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
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.frame.config import ConfigError

Rows = dict[str, NDArray[np.generic]]  #: arrays with the same first dimension

#: Of the split and of the generated rows. They are the data set: a run's own seed does not change them.
_DATASET_SEED = 20240229


class RowSource(Protocol):
    """Rows that can be asked for by number."""

    def __len__(self) -> int: ...
    def take(self, which: NDArray[np.integer]) -> Rows: ...


@dataclass(frozen=True)
class InMemory:
    """A source that has its rows."""

    rows: Rows

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))

    def take(self, which: NDArray[np.integer]) -> Rows:
        return {name: array[which] for name, array in self.rows.items()}


@dataclass(frozen=True)
class Dataset:
    """Rows to train on and rows to test on, never the same."""

    train: RowSource
    test: RowSource
    classes: int = 10  #: `y` of each row is below


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
    all_rows = InMemory(rows)
    tested, trained = split(len(all_rows), test)
    return Dataset(InMemory(all_rows.take(trained)), InMemory(all_rows.take(tested)))


def split(count: int, test: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Which of so many rows are for the test, and which are to be trained on. Always the same."""
    order = np.random.default_rng(_DATASET_SEED).permutation(count)
    return order[:test], order[test:]


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

    def __init__(self, source: RowSource, batch: int, seed: int, host: int, hosts: int) -> None:
        import grain

        self._source = source
        self._share = batch // hosts
        self._order = Order(len(source), seed)
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
        return self._source.take(self._order.rows(next(self._positions)))

    def example(self) -> Rows:
        """Rows in the shape of a batch, to compile with; the position stays where it is."""
        return self._source.take(np.zeros(self._share, dtype=np.int64))

    @property
    def state(self) -> dict[str, int]:
        """Where the next batch begins; the same on every host, and for any number of hosts."""
        return self._positions.get_state()

    @state.setter
    def state(self, state: dict[str, int]) -> None:
        self._positions.set_state(state)
