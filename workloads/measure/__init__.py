"""Measuring: ways of doing one thing side by side, what a handful of samples says, and a table of it.

No jax here, and no word on what is measured: that is `tables/`, `numerics/` and the benchmarks.
"""
