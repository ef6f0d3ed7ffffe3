"""The Cloud TPU API on a laptop: its services over gRPC and REST, which answer from the model in `cloud/`.

Faults by command are in `inject.py` above, hosts in `farm/`. Callers import the modules.
"""
