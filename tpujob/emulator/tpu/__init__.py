"""The Cloud TPU API on a laptop: its records, its rules, the cloud's own actions, its services.

Faults by command are in `inject.py` above, hosts in `farm/`. Callers import the modules: only `server`, `rest` and the
modules below them import gRPC.
"""
