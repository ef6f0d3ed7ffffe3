"""Which packages of an extra of tpujob are installed. Asked before something is started that needs them."""

import re
from importlib import metadata

_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*).*;.*\bextra == ['\"]([a-z]+)['\"]")


def lacking(extra: str) -> list[str]:
    """The packages of that extra that are not installed, by name. Nothing is imported."""
    try:
        stated = metadata.requires("tpujob") or []
    except metadata.PackageNotFoundError:  # it is run from a folder, not installed
        return []
    found = (_REQUIREMENT.match(line) for line in stated)
    return [one[1] for one in found if one and one[2] == extra and not _is_installed(one[1])]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
