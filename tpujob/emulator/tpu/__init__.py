"""The Cloud TPU API on a laptop: its records, its rules, its gRPC services.

Faults that a person asks for are in `faults/`; the hosts below the slices, in `farm/`.
"""
