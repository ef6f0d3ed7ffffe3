"""Capacity: which job gets the next slice, where and of which type, and why a job waits. Pure: the same records give
the same answer.

Places of a job: `site.py`, `offers.py`, `datasets.py`. Pauses after refusals of the cloud: `circuits.py`. The order of
jobs: `planning.py`. `hardware/` has the facts of the hardware; `decide/queued.py` decides what a job does with its
place.
"""
