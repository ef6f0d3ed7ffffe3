"""A small multilayer perceptron on scanned digits: the shortest whole example of a workload.

This file has its settings and imports no jax; `model.py` has the model, `__main__.py` starts it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from workloads.frame.config import Sizes, TrainConfig


class MlpConfig(TrainConfig):
    """Trains a multilayer perceptron to tell ten digits apart, and tests it."""

    binding: ClassVar[tuple[str, ...]] = ("seed", "dataset", "hidden")

    dataset: Literal["digits", "synthetic"] = Field(
        "digits",
        description="`digits`: 1,797 scanned digits of 8 x 8, from scikit-learn; "
        "`synthetic`: generated rows of 784 numbers",
    )
    data: str = Field(
        "",
        description="in place of it: a folder that `tpujob data pack` made of .npy files, one array of "
        "numbers in each, in a folder for each class; empty: what `data:` in the job file names, or `dataset`",
    )
    hidden: Sizes = Field((1024, 512), min_length=1, description="sizes of the hidden layers")

    def identity(self) -> dict[str, Any]:
        """Return the binding settings with a hash of the packed set's content; its folder may change."""
        from workloads.data import packed, places  # imports numpy, which takes its time

        place = places.data_place(self.data, "")
        return {**super().identity(), "data": packed.identity(place) if place else ""}
