"""The packages that an extra of tpujob needs, and this Python may lack."""

import re
import shlex
from collections.abc import Mapping
from importlib import metadata

from tpujob.errors import BadRequest

_REQUIREMENT = re.compile(r"^(([A-Za-z0-9][A-Za-z0-9._-]*)[^;]*);.*\bextra == ['\"]([a-z]+)['\"]")


def missing(extra: str) -> dict[str, str]:
    """Return the requirements of the extra that are not installed, by the name of their package."""
    try:
        stated = metadata.requires("tpujob") or []
    except metadata.PackageNotFoundError:  # tpujob runs from a folder, not installed
        return {}
    matches = (_REQUIREMENT.match(line) for line in stated)
    return {m[2]: m[1].strip() for m in matches if m and m[3] == extra and not version(m[2])}


def lacking(purpose: str, packages: Mapping[str, str]) -> BadRequest:
    """Return the error that names the missing packages, and the command that installs them."""
    return BadRequest(
        f"{purpose}, and this Python has no {', '.join(packages)}",
        hint=f"python3 -m pip install {shlex.join(packages.values())}",
    )


def version(package: str) -> str:
    """Return the version of an installed package; empty: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
