"""The hosts of the emulated cloud: one process in which every TPU VM host is an SSH server, a metadata server and a
home folder on its own loopback address. `python -m tpujob.emulator.farm` runs it; `control.py` is its way in.
"""
