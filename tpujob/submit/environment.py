"""Finds the packages of this Python that the compile check or an extra needs, without importing them."""

import importlib.util
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata

from tpujob.errors import BadRequest

_REQUIREMENT = re.compile(r"^(([A-Za-z0-9][A-Za-z0-9._-]*)[^;]*);.*\bextra == ['\"]([a-z]+)['\"]")


def require_compiler() -> None:
    """Raise BadRequest if this Python cannot compile the bundled programs for a TPU."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BadRequest(
            f"the TPU's compiler is made for Linux on x86-64 only; this is {platform.system()} on {platform.machine()}",
            hint="Run the check on a Linux machine, or in a container there.",
        )
    lacks = missing_packages("workloads")
    if importlib.util.find_spec("libtpu") is None:
        lacks["libtpu"] = "jax[tpu]"
    if lacks:
        raise lacking("the check compiles on this machine", lacks)


def versions() -> str:
    """Return the versions of the compiler's packages and of Python as one text."""
    names = ("jax", "jaxlib", "libtpu")
    return " ".join([*(f"{name}={_version(name)}" for name in names), platform.python_version()])


def missing_packages(extra: str) -> dict[str, str]:
    """Return the requirements of the extra that are not installed, by the name of their package."""
    try:
        stated = metadata.requires("tpujob") or []
    except metadata.PackageNotFoundError:  # tpujob runs from a folder, not installed
        return {}
    matches = (_REQUIREMENT.match(line) for line in stated)
    return {m[2]: m[1].strip() for m in matches if m and m[3] == extra and not _version(m[2])}


def lacking(purpose: str, packages: Mapping[str, str]) -> BadRequest:
    """Return the error that names the missing packages, and the command that installs them."""
    return BadRequest(
        f"{purpose}, and this Python has no {', '.join(packages)}",
        hint=f"python3 -m pip install {shlex.join(packages.values())}",
    )


def _version(package: str) -> str:
    """Return the version of an installed package; empty: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
