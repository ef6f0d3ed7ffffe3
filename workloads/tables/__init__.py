"""The tables that talks on JAX show, as ratios measured in one run on this machine.

This file has the settings and imports no jax; `talks.py` has what is measured, `report.py` measures and says it.
"""

from __future__ import annotations

from pydantic import Field

from workloads.frame.config import Settings


class TablesConfig(Settings):
    """Measures NumPy, JAX, jit, vmap, Flax NNX and PyTorch (where it is installed) side by side."""

    rounds: int = Field(15, ge=3, le=1000, description="samples of each way, taken in turn")
    elements: int = Field(1_000_000, ge=1, description="numbers in the element-wise tables")
    pairs: int = Field(10_000, ge=1, description="pairs of points in the table of loop and vmap")
    rows: int = Field(64, ge=1, description="rows of a batch in the table of prediction")
    loop_s: float = Field(
        1.0,
        gt=0,
        description="seconds that a sample of a Python loop may take; beyond, it is a part",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of all numbers")
