"""The hosts of the emulated cloud, in their own process: every TPU VM host is an SSH server, a metadata server and a
home folder on its own loopback address. `python -m tpujob.emulator.farm` runs the farm. Other processes reach it
through `driver.FarmClient`, so this package exports nothing."""
