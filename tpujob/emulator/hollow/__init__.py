"""Hosts that are only reports, as Kubernetes' kubemark has nodes: for ten thousand jobs on one machine.

A hollow host has no process, no disk and no SSH server of its own. One SSH server answers for all of them, and
understands exactly what is sent to the agent; what the agent would report is written to the emulated storage, signed
with the key of the attempt. Which slices are hollow is decided when they come up (`tpujob emulator hollow on`); the
others are in `farm/`. No rule of the emulated cloud belongs here.
"""
