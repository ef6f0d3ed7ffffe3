"""The packages of this Python: those that a check of a program needs, and those of an extra. Nothing is imported."""

import importlib.util
import platform
import re
import sys
from importlib import metadata

from tpujob.errors import BadRequest

_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*).*;.*\bextra == ['\"]([a-z]+)['\"]")


def require_compiler() -> None:
    """Raises BadRequest where this Python cannot compile the bundled programs for a TPU."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BadRequest(
            f"the TPU's compiler is made for Linux on x86-64 only; this is {platform.system()} on {platform.machine()}",
            hint="Run the check on a Linux machine, or in a container there.",
        )
    lacks = lacking("workloads")
    if importlib.util.find_spec("libtpu") is None:
        lacks.append("libtpu")
    if lacks:
        raise BadRequest(
            f"the check compiles on this machine, and this Python has no {', '.join(lacks)}",
            hint="python3 -m pip install 'tpujob[workloads,check]'",
        )


def versions() -> str:
    """Another text for other versions of what compiles."""
    names = ("jax", "jaxlib", "libtpu")
    return " ".join([*(f"{name}={_version(name)}" for name in names), platform.python_version()])


def lacking(extra: str) -> list[str]:
    """The packages of that extra that are not installed, by name."""
    try:
        stated = metadata.requires("tpujob") or []
    except metadata.PackageNotFoundError:  # it is run from a folder, not installed
        return []
    found = (_REQUIREMENT.match(line) for line in stated)
    return [one[1] for one in found if one and one[2] == extra and not _version(one[1])]


def _version(package: str) -> str:
    """Empty: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
