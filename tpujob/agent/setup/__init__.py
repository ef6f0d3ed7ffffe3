"""What is made ready on a host before the program starts: bundles, environments, images, mounts, caches.

The checks of devices are in `preflight/`; the program itself is started by `commands.py`.
"""
