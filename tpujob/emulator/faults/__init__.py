"""Fault injection: by command, by schedule, or by chance from a seed, on the emulated Cloud TPU.

What the API itself does is in `tpu/`.
"""
