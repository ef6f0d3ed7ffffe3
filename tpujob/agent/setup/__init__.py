"""What is made ready on a host before the program starts: bundles, environments, images, mounts, caches.

The checks of devices are in `preflight/`; the program itself is started by `commands.py`.
"""

from tpujob.agent.setup.bundles import fetch_bundle
from tpujob.agent.setup.containers import remove_containers
from tpujob.agent.setup.mounts import unmount_all
from tpujob.agent.setup.steps import (
    check_machine,
    fetch_compile_cache,
    prepare_environment,
    prepare_folder,
    run_preflight,
    take_over_host,
)

__all__ = [
    "check_machine", "fetch_bundle", "fetch_compile_cache", "prepare_environment", "prepare_folder",
    "remove_containers", "run_preflight", "take_over_host", "unmount_all",
]  # fmt: skip
