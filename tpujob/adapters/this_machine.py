"""Looks at this machine: its software, and what the local stack needs."""

import contextlib
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from tpujob.doctor.machine import Laptop, Software

#: addresses such as emulated hosts get; nothing listens there
_LIKE_HOSTS = ("127.3.1.1", "127.250.250.250")


def software() -> Software:
    """Which of its requirements are installed."""
    needed = _requirements()
    installed: dict[str, str] = {}
    for one in needed:
        name = re.split(r"[^A-Za-z0-9._-]", one)[0]
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return Software(sys.version_info[:3], needed, installed)


def laptop(state: Path, running: Mapping[str, bool]) -> Laptop:
    """What the local stack needs of this machine; `state`: its folder, which may not exist yet."""
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    found = state.stat() if state.exists() else None
    return Laptop(
        loopback=_loopback(),
        port=_port(),
        disk_free=shutil.disk_usage(there).free,
        state=str(state),
        state_open=found is not None and bool(stat.S_IMODE(found.st_mode) & 0o077),
        state_foreign=found is not None and found.st_uid != os.geteuid(),
        ssh=shutil.which("ssh") or "",
        running=running,
    )


def _requirements() -> list[str]:
    """Those without a condition: extras are for developers and workloads only."""
    try:
        return [one for one in metadata.requires("tpujob") or () if ";" not in one]
    except metadata.PackageNotFoundError:
        return []


def _loopback() -> str:
    for address in _LIKE_HOSTS:
        try:
            with socket.socket() as probe:
                probe.bind((address, 0))
        except OSError as error:
            return f"the address {address} cannot be used: {error.strerror}"
    return ""


def _port() -> str:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        return f"no free port: {error.strerror}"
    return ""
