"""A small multilayer perceptron on scanned digits: the shortest whole example of a workload.

This file has its settings and imports no jax; `model.py` has the model, `__main__.py` starts it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from workloads.config import Sizes, TrainConfig


class MlpConfig(TrainConfig):
    """Trains a multilayer perceptron to tell ten digits apart, and tests it."""

    binding: ClassVar[tuple[str, ...]] = ("seed", "dataset", "hidden")

    dataset: Literal["digits", "synthetic"] = Field(
        "digits",
        description="`digits`: 1,797 scanned digits of 8 x 8, from scikit-learn; "
        "`synthetic`: generated rows of 784 numbers",
    )
    hidden: Sizes = Field((1024, 512), min_length=1, description="sizes of the hidden layers")
