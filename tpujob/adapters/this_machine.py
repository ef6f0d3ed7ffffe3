"""Looks at this machine: its software, what the local stack needs, and the quotas of its emulator."""

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
from typing import Any

from tpujob.doctor.machine import Laptop, Software
from tpujob.doctor.quota import Held, Limit, QuotaKind, QuotaOverview, allowances, unit_of
from tpujob.domain.hardware import accelerators

#: addresses such as emulated hosts get; nothing listens there
_LIKE_HOSTS = ("127.3.1.1", "127.250.250.250")


def software() -> Software:
    """Return which of its requirements are installed."""
    needed: list[str] = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        # those with a condition are of extras, which only developers and workloads need
        needed = [one for one in metadata.requires("tpujob") or () if ";" not in one]
    installed: dict[str, str] = {}
    for one in needed:
        name = re.split(r"[^A-Za-z0-9._-]", one)[0]
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return Software(sys.version_info[:3], needed, installed)


def laptop(state: Path, running: Mapping[str, bool]) -> Laptop:
    """Observe what the local stack needs of this machine; `state`: its folder, which may not exist yet."""
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    found = state.stat() if state.exists() else None
    return Laptop(
        loopback=_loopback(),
        disk_free=shutil.disk_usage(there).free,
        state=str(state),
        state_open=found is not None and bool(stat.S_IMODE(found.st_mode) & 0o077),
        state_foreign=found is not None and found.st_uid != os.geteuid(),
        ssh=shutil.which("ssh") or "",
        running=running,
    )


def _loopback() -> str:
    for address in _LIKE_HOSTS:
        try:
            with socket.socket() as probe:
                probe.bind((address, 0))
        except OSError as error:
            return f"the address {address} cannot be used: {error.strerror}"
    return ""


# Quotas of the emulator -----------------------------------------------------------------------------------------------


def emulated_quotas(status: Mapping[str, Any]) -> QuotaOverview:
    """Return the quotas in the emulator's `status`. A quota counts all slices of a generation, also those of one host;
    without a quota the stock of hosts, which `tpujob emulator status` shows, is the only limit."""
    limits = [
        Limit(
            metric="emulator",
            kind=QuotaKind(q["generation"], q["pricing"]),
            scope="zone",
            place=q["zone"],
            limit=q["limit"],
            unit=unit_of(q["generation"]),
        )
        for q in status["faults"]["quotas"]
    ]
    held = [
        Held(QuotaKind(found.generation, one["pricing"]), one["zone"], found.chips)
        for one in status["slices"]
        for found in [accelerators.find(one["type"])]
    ]
    zones = [one["zone"] for one in status["zones"]]
    # everything that is not limited may be held, as far as the stock goes
    rows = allowances(limits, zones, held=held, closed_kinds=True)
    return QuotaOverview("the emulator", [{**row, "known": True} for row in rows])
