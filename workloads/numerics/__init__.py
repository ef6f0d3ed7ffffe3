"""Measures floating point on this machine: errors of matrix products, excess precision, approximate top-k.

This file has the settings and imports no jax; `checks.py` has the measurements, `report.py` reports them.
"""

from __future__ import annotations

from pydantic import Field

from workloads.frame.config import Settings, Sizes


class NumericsConfig(Settings):
    """Compares float32 products with float64, and looks for two compiler pitfalls of production systems."""

    sizes: Sizes = Field(
        (16, 64, 256, 1024),
        min_length=1,
        description="d of the products [d,4]x[4,d] and [4,d]x[d,4]",
    )
    rows: int = Field(256, ge=1, description="rows of logits in the test of excess precision")
    vocabulary: int = Field(1024, ge=2, description="logits in a row")
    candidates: int = Field(100_000, ge=1000, description="numbers from which approx_max_k takes")
    k: int = Field(100, ge=1, le=1000, description="how many of them it takes")
    seed: int = Field(0, ge=0, lt=2**32, description="of all numbers")
