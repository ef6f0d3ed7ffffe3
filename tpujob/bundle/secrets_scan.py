"""Files that look like keys, which are better not shipped with code: by their names, and by how they begin."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

#: names of files that hold nothing but secrets
NAMES = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    ".pypirc",
    ".pgpass",
    "application_default_credentials.json",
)
#: names that only look so: what a project commits on purpose
HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist")
#: what the first bytes of a key say, in any file
MARKS = (b"PRIVATE KEY-----", b'"type": "service_account"', b'"type":"service_account"')

_LOOK = 4096  #: bytes at the beginning of a file, where a service account's JSON has its type
_SMALL = 64 * 1024  #: bytes; no key is larger, and reading only these keeps a large folder quick


def keys_among(folder: Path, names: Iterable[str]) -> list[str]:
    """The files that look like keys, in the order given."""
    return [name for name in names if _looks_like_a_key(folder / name, PurePosixPath(name).name)]


def _looks_like_a_key(path: Path, name: str) -> bool:
    if name in HARMLESS:
        return False
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in NAMES):
        return True
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _SMALL:
            return False
        with path.open("rb") as file:
            beginning = file.read(_LOOK)
    except OSError:
        return False  # packing it says what is wrong
    return any(mark in beginning for mark in MARKS) and not name.endswith(".py")
