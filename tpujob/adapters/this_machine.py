"""Inspects this machine: its software, what the local stack needs, and the quotas of its emulator."""

import contextlib
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tpujob.doctor.machine import Laptop, Software
from tpujob.doctor.quota import unit_of
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.ports import Held, Limit, QuotaKind, QuotaUse

#: loopback addresses like those of emulated hosts; nothing listens there
_HOST_ADDRESSES = ("127.3.1.1", "127.250.250.250")


def software() -> Software:
    """Return the version of Python, the packages that tpujob requires, and their installed versions."""
    needed: list[str] = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        # a condition marks an extra, which only developers and workloads need
        needed = [line for line in metadata.requires("tpujob") or () if ";" not in line]
    installed: dict[str, str] = {}
    for requirement in needed:
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return Software(sys.version_info[:3], needed, installed)


def laptop(state: Path, running: Mapping[str, bool]) -> Laptop:
    """Inspect what the local stack needs of this machine. `state`: its folder, which may not exist yet."""
    existing_folder = next(folder for folder in (state, *state.parents) if folder.exists())
    status = state.stat() if state.exists() else None
    return Laptop(
        loopback=_loopback_problem(),
        disk_free=shutil.disk_usage(existing_folder).free,
        state=str(state),
        state_open=status is not None and bool(stat.S_IMODE(status.st_mode) & 0o077),
        state_foreign=status is not None and status.st_uid != os.geteuid(),
        ssh=shutil.which("ssh") or "",
        running=running,
    )


def _loopback_problem() -> str:
    """Return why emulated hosts cannot get their loopback addresses; empty: they can."""
    for address in _HOST_ADDRESSES:
        try:
            with socket.socket() as probe:
                probe.bind((address, 0))
        except OSError as error:
            return f"the address {address} cannot be used: {error.strerror}"
    return ""


# Quotas of the emulator -----------------------------------------------------------------------------------------------


class EmulatedQuota:
    """Implements `ports.ProjectQuota` by the emulator's `status`. A quota counts all slices of a generation, also those
    of one host. Without a quota the only limit is the stock of hosts, which `tpujob emulator status` shows."""

    complete = True

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status
        self.zones = [str(zone["zone"]) for zone in status["zones"]]

    def limits(self) -> list[Limit]:
        return [
            Limit(
                metric="emulator",
                kind=QuotaKind(quota["generation"], quota["pricing"]),
                scope="zone",
                place=quota["zone"],
                limit=quota["limit"],
                unit=unit_of(quota["generation"]),
            )
            for quota in self._status["faults"]["quotas"]
        ]

    def use(self, zones: Sequence[str]) -> QuotaUse:
        held = [
            Held(
                QuotaKind(tpu.generation, find_pricing(slice["pricing"]).quota),
                slice["zone"],
                tpu.chips,
            )
            for slice in self._status["slices"]
            if slice["zone"] in zones
            for tpu in [accelerators.find(slice["type"])]
        ]
        return QuotaUse(held, {})
