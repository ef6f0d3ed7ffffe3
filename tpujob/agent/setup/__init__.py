"""The preparation of a host: bundles, environments, images, mounts, data and caches, and the preflight check of this
host and of all hosts together. `commands.py` starts the program.
"""

from tpujob.agent.setup import steps
from tpujob.agent.setup.bundles import fetch_bundle
from tpujob.agent.setup.containers import remove_containers
from tpujob.agent.setup.mounts import unmount_all

__all__ = ["fetch_bundle", "remove_containers", "steps", "unmount_all"]
