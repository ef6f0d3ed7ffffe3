"""What is made ready on a host before the program starts: bundles, environments, images, mounts, caches; and
the check that this host, and all hosts together, are what they should be.

The program itself is started by `commands.py`.
"""

from tpujob.agent.setup import steps
from tpujob.agent.setup.bundles import fetch_bundle
from tpujob.agent.setup.containers import remove_containers
from tpujob.agent.setup.mounts import unmount_all

__all__ = ["fetch_bundle", "remove_containers", "steps", "unmount_all"]
