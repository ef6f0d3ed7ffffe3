"""The hosts of the emulated cloud, in a process of its own: every TPU VM host is an SSH server, a metadata server and a
home folder on its own loopback address. `python -m tpujob.emulator.farm` runs it; others reach it through
`driver.FarmClient`, so it exports nothing.
"""
