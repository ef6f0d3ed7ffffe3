"""The Cloud TPU API on a laptop: its records, its rules, what the cloud does by itself, its gRPC services.

Faults by command are in `faults/`, hosts in `farm/`. Callers import the modules: only `server` and what it stands on
import gRPC.
"""
