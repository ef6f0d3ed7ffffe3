"""Finds the origin of a number that is not finite: a device, the data or the model.

`replay.py` computes a bad step again, `blame.py` decides from that, `fault_injection.py` makes a device, a row or the
model fail. How steps are trained and saved is the frame's.
"""
