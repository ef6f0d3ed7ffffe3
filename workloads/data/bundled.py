"""Data sets that need no download: they come with scikit-learn, or are generated."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from workloads.data.rows import DATASET_SEED, Dataset, InMemory, Rows, split
from workloads.frame.config import ConfigError

#: Of the 1,797 digits, always the same ones.
DIGITS_TESTED = 360


def scanned_digits() -> Rows:
    """All digits of scikit-learn: `x`, float32 [1797, 64], from 0 to 1; `y`, int32 [1797], the digit.

    Reads the file in scikit-learn's package without importing scikit-learn, which takes a second.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ConfigError("the digits need the package scikit-learn, which is not installed")
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    return {"x": table[:, :-1] / 16, "y": table[:, -1].astype(np.int32)}


def digits() -> Dataset:
    """The digits, a fifth of them for the test."""
    return _in_memory(scanned_digits(), DIGITS_TESTED)


def synthetic() -> Dataset:
    """Generated rows in the shape of MNIST: a random pattern for each class, under heavy noise."""
    random, rows = np.random.default_rng(DATASET_SEED), 10_240
    patterns = random.standard_normal((10, 784), dtype=np.float32)
    y = random.integers(0, 10, rows, dtype=np.int32)
    noise = random.standard_normal((rows, 784), dtype=np.float32)
    return _in_memory({"x": 0.2 * patterns[y] + noise, "y": y}, test=rows // 5)


def _in_memory(rows: Rows, test: int) -> Dataset:
    all_rows = InMemory(rows)
    tested, trained = split(len(all_rows), test)
    return Dataset(
        InMemory(all_rows.take(trained[np.arange(len(trained))])), InMemory(all_rows.take(tested))
    )
