"""The source of uv and Pythons for a host without the internet, as a site with a mirror has it: this machine's own,
packed as their vendors pack them. Packages come from the index that pip is configured with on this machine."""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

VERSION = platform.python_version()
_UNUSED = {"test", "idlelib", "site-packages", "__pycache__", "ensurepip"}


def own_uv() -> Path:
    """Return the uv of the development packages."""
    return Path(sys.executable).with_name("uv")


def pack_uv(folder: Path) -> str:
    """Pack uv as its vendor does; return the folder as a URL, with the archive's hash, which is not the pinned one."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"uv-{platform.machine()}-unknown-linux-gnu"
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz", compresslevel=0) as tar:
        tar.add(own_uv(), f"{name}/uv")
    digest = hashlib.sha256((folder / f"{name}.tar.gz").read_bytes()).hexdigest()
    return f"{folder.as_uri()}#sha256={digest}"


def pack_python(folder: Path) -> str:
    """Return the URL of a list of Pythons with only this Python."""
    folder.mkdir(parents=True, exist_ok=True)
    archive, base = folder / f"cpython-{VERSION}.tar.gz", Path(sys.base_prefix)
    library = f"lib/python{VERSION.rpartition('.')[0]}"
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        for part in ("bin", library):
            tar.add(base / part, f"python/{part}", filter=_needed)
    family, (major, minor, patch) = platform.machine(), platform.python_version_tuple()
    entry = {
        "name": "cpython", "arch": {"family": family, "variant": None}, "os": "linux", "libc": "gnu",
        "major": int(major), "minor": int(minor), "patch": int(patch), "prerelease": "", "variant": None,
        "url": archive.as_uri(), "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(), "build": "1",
    }  # fmt: skip
    listed = folder / "pythons.json"
    listed.write_text(json.dumps({f"cpython-{VERSION}-linux-{family}-gnu": entry}))
    return listed.as_uri()


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = PurePosixPath(member.name)
    unused = _UNUSED & set(path.parts) or any(part.startswith("config-") for part in path.parts)
    return None if unused else member


def index() -> dict[str, str]:
    """Return the variables that lead uv to the index and certificates of this machine's pip; empty: the default."""
    names = {"UV_DEFAULT_INDEX": "index-url", "SSL_CERT_FILE": "cert"}
    variables_ = {variable: _pips(name) for variable, name in names.items()}
    variables_["SSL_CERT_FILE"] = os.environ.get("SSL_CERT_FILE") or variables_["SSL_CERT_FILE"]
    return {variable: value for variable, value in variables_.items() if value}


def _pips(name: str) -> str:
    """Return a setting of pip; empty: not set."""
    value = os.environ.get(f"PIP_{name.replace('-', '_').upper()}", "")
    for where in () if value else ("global", "user", "site"):
        command = [sys.executable, "-m", "pip", "config", "get", f"{where}.{name}"]
        value = value or subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return value


def variables(folder: Path) -> dict[str, str]:
    """Return the variables of a job's `run.env` that lead to the mirror."""
    return {
        "UV_DOWNLOAD_URL": pack_uv(folder / "uv"),
        "UV_PYTHON_DOWNLOADS_JSON_URL": pack_python(folder / "python"),
        **index(),
    }
