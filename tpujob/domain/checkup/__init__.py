"""Whether a place is fit for running jobs: what was seen of it in, findings out. Pure.

`words.py` has what all checks speak in; `access.py`, `places.py`, `network.py` and `machine.py` have the checks, each
with the records of what it needs to see; `cloud.py` says which of them a context of Google Cloud gets.
"""
