"""Finds the packages of this Python that the compile check or an extra needs, without importing them."""

import importlib.util
import platform
import re
import sys
from importlib import metadata

from tpujob.errors import BadRequest

_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*).*;.*\bextra == ['\"]([a-z]+)['\"]")


def require_compiler() -> None:
    """Raise BadRequest if this Python cannot compile the bundled programs for a TPU."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BadRequest(
            f"the TPU's compiler is made for Linux on x86-64 only; this is {platform.system()} on {platform.machine()}",
            hint="Run the check on a Linux machine, or in a container there.",
        )
    lacks = missing_packages("workloads")
    if importlib.util.find_spec("libtpu") is None:
        lacks.append("libtpu")
    if lacks:
        raise BadRequest(
            f"the check compiles on this machine, and this Python has no {', '.join(lacks)}",
            hint="python3 -m pip install 'tpujob[workloads,check]'",
        )


def versions() -> str:
    """Return the versions of the compiler's packages and of Python as one text."""
    names = ("jax", "jaxlib", "libtpu")
    return " ".join([*(f"{name}={_version(name)}" for name in names), platform.python_version()])


def missing_packages(extra: str) -> list[str]:
    """Return the names of the extra's packages that are not installed."""
    try:
        stated = metadata.requires("tpujob") or []
    except metadata.PackageNotFoundError:  # tpujob runs from a folder, not installed
        return []
    matches = (_REQUIREMENT.match(line) for line in stated)
    return [m[1] for m in matches if m and m[2] == extra and not _version(m[1])]


def _version(package: str) -> str:
    """Return the version of an installed package; empty: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
