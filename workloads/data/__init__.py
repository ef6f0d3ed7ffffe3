"""Rows to train on: where they come from, and an endless order over them that can be continued anywhere.

No model and no training belongs here. Nothing here imports jax.
"""
