"""Finds the packages of this Python that the compile check needs, without importing them."""

import importlib.util
import platform
import sys

from tpujob.config import packages
from tpujob.errors import BadRequest


def require_compiler() -> None:
    """Raise BadRequest if this Python cannot compile the bundled programs for a TPU."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BadRequest(
            f"the TPU's compiler is made for Linux on x86-64 only; this is {platform.system()} on {platform.machine()}",
            hint="Run the check on a Linux machine, or in a container there.",
        )
    lacks = packages.missing("workloads")
    if importlib.util.find_spec("libtpu") is None:
        lacks["libtpu"] = "jax[tpu]"
    if lacks:
        raise packages.lacking("the check compiles on this machine", lacks)


def versions() -> str:
    """Return the versions of the compiler's packages and of Python as one text."""
    names = ("jax", "jaxlib", "libtpu")
    return " ".join(
        [*(f"{name}={packages.version(name)}" for name in names), platform.python_version()]
    )
