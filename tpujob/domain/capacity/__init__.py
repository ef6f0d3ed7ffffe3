"""Who gets a slice next, where, and of which type; why a job waits. Pure: the same records give the same answer.

Where a job may run: `site.py`, `offers.py`, `datasets.py`. When the cloud may be asked again: `circuits.py`. Whose turn
it is: `planning.py`. Facts of the hardware are in `hardware/`; what a job does about its place, in `decide/queued.py`.
"""
