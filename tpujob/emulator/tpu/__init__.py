"""The Cloud TPU API on a laptop: its records, its rules, what the cloud does by itself, its services.

Faults by command are in `inject.py` above, hosts in `farm/`. Callers import the modules: only `server`, `rest` and what
they stand on import gRPC.
"""
