"""Data sets of rows, and an endless order over their rows that can be continued anywhere.

A source has rows that can be asked for by number, many at a time. `Order` is the endless order in which a run trains on
them, `Feed` hands them out batch by batch. Grain prepares batches ahead, as it does not cost it more than 60 us each;
to have Grain ask for each row would cost 40 us a row, which is more than a training step of a small model takes.
"""

# Grain is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.frame.config import ConfigError

Rows = dict[str, NDArray[np.generic]]  #: arrays with the same first dimension

#: Of splits and of generated rows. They are the data set: a run's own seed does not change them.
DATASET_SEED = 20240229
#: Batches that a thread has ready or is preparing.
_AHEAD = 2
#: Rows whose order is held in memory, 32 MB. Grain computes a number of a larger order in 5 us, of a small one in 30.
MOST_IN_MEMORY = 1 << 22
#: Of Grain's index shuffle: its numbers have 32 bits, and Grain itself always asks for so many rounds.
_MOST_ROWS = 1 << 32
_ROUNDS = 4


class RowSource(Protocol):
    """Rows that can be asked for by number, from several threads at a time."""

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
    classes: int = 10  #: `y` of each row, or each token, is below
    #: Threads that prepare batches ahead of the training; 0: rows are in memory, and there is nothing to wait for.
    readers: int = 0
    #: In place of `train.take`: the row of that number, changed at random. What is drawn follows from the seed of the
    #: run and the position of the row in the endless order alone.
    augmented: Callable[[int, np.random.Generator], Rows] | None = None


class Numbers(Protocol):
    """Numbers of rows, as a NumPy array has them."""

    def __len__(self) -> int: ...
    def __getitem__(self, places: NDArray[np.integer], /) -> NDArray[np.integer]: ...


@dataclass(frozen=True)
class IndexShuffle:
    """The numbers 0 to `count` - 1 in a random order, from its place `start` on. Each is computed when it is asked for:
    the order of a billion rows needs no memory."""

    count: int
    seed: int  #: below 2^32
    start: int = 0

    def __len__(self) -> int:
        return self.count - self.start

    def __getitem__(self, places: NDArray[np.integer]) -> NDArray[np.integer]:
        from grain.experimental import index_shuffle

        at, last = (places + self.start).tolist(), self.count - 1
        return np.array([index_shuffle(i, last, self.seed, _ROUNDS) for i in at], np.int64)


def shuffled(count: int, *seed: int, start: int = 0) -> Numbers:
    """Return the numbers 0 to `count` - 1 in a random order that follows from the seed, without its first `start`.
    Raises ConfigError if there are more than 2^32."""
    if count <= MOST_IN_MEMORY:
        return np.random.default_rng(seed).permutation(count)[start:]
    if count > _MOST_ROWS:
        raise ConfigError(
            f"the data set has {count:,} rows, and at most {_MOST_ROWS:,} can be shuffled"
        )
    [key] = np.random.SeedSequence(seed).generate_state(1).tolist()
    return IndexShuffle(count, key, start)


def split(count: int, test: int) -> tuple[NDArray[np.integer], Numbers]:
    """Return the numbers of the rows for the test, and of those to train on. Always the same split."""
    tested = shuffled(count, DATASET_SEED)[np.arange(test)]
    return tested, shuffled(count, DATASET_SEED, start=test)


class Order:
    """The rows 0..count-1 over and over, in a new order each time. Any position can be asked for."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._seed = seed
        #: Which order it is, stored in checkpoints. All sets had 1, NumPy's `permutation`, before there was a second.
        self.version = 1 if count <= MOST_IN_MEMORY else 2
        # batches that are prepared at the same time are in two epochs at most
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def rows(self, positions: NDArray[np.integer]) -> NDArray[np.integer]:
        """The rows at these positions of the endless order."""
        epochs, places = np.divmod(positions, self._count)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            rows[of_epoch] = self._order(epoch)[places[of_epoch]]
        return rows

    def _shuffled(self, epoch: int) -> Numbers:
        return shuffled(self._count, self._seed, epoch)


class Feed:
    """This host's rows of one batch after another, with a position that can be saved and restored.

    The position is that of the rows that were handed out, however many are prepared behind them: a run that goes on
    from it gets the next ones, on any number of hosts.
    """

    def __init__(self, dataset: Dataset, batch: int, seed: int, host: int, hosts: int) -> None:
        """Raises ConfigError if there are no rows to train on."""
        if not len(dataset.train):
            raise ConfigError("the data set has no rows to train on")
        self._dataset = dataset
        self._batch = batch
        self._own = np.arange(host, batch, hosts)
        self._order = Order(len(dataset.train), seed)
        self._seed = seed
        self.waited_ms = 0.0  #: how long the last batch was waited for
        self.state = {"position": 0, "order": self._order.version}

    def __next__(self) -> Rows:
        """The next batch. Raises ConfigError for a row that cannot be read, wherever it was prepared."""
        began = time.perf_counter()
        rows = next(self._batches)
        self.waited_ms = (time.perf_counter() - began) * 1000
        return rows

    def example(self) -> Rows:
        """Rows in the shape of a batch, to compile with; the position stays where it is."""
        return self._numbered[0]

    @property
    def state(self) -> dict[str, int]:
        """The number of rows that all hosts together have received, and their order; the same on every host. It raises
        ConfigError to set a position in another order."""
        received = self._begin + self._batches.get_state()["next_index"] * self._batch
        return {"position": received, "order": self._order.version}

    @state.setter
    def state(self, state: dict[str, int]) -> None:
        import grain

        if state.get("order", 1) != self._order.version:
            raise ConfigError(
                f"the checkpoint was made with another order of more than {MOST_IN_MEMORY:,} rows, and rows would be "
                "left out or come twice: continue with the version of tpujob that made it, or use another workdir"
            )
        self._begin = state["position"]
        readers = self._dataset.readers
        options = grain.ReadOptions(num_threads=readers, prefetch_buffer_size=readers * _AHEAD)
        endless = grain.MapDataset.range(sys.maxsize)
        if (augmented := self._dataset.augmented) is None:
            self._numbered = endless.map(
                lambda number: self._dataset.train.take(self._order.rows(self._positions(number)))
            )
        else:
            # Grain draws by the seed and the number of the element, which is the position of the row
            rows = endless.seed(self._seed).random_map(
                lambda at, random: augmented(int(self._order.rows(np.array([at]))[0]), random)
            )
            self._numbered = endless.map(
                lambda number: _stacked([rows[at] for at in self._positions(number).tolist()])
            )
        self._batches = iter(self._numbered.to_iter_dataset(options))

    def numbers(self, position: int) -> list[int]:
        """The rows of the training set that make the batch, of all hosts, which ends at this position."""
        return self._order.rows(np.arange(position - self._batch, position)).tolist()

    def _positions(self, number: int) -> NDArray[np.integer]:
        """Return the positions of this host's rows in a batch, numbered from the restored position."""
        return self._begin + number * self._batch + self._own


def _stacked(rows: list[Rows]) -> Rows:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
