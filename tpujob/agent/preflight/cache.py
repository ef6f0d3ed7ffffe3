"""Keeps what the newest pre-flight check on this host found, and tells whether it still holds."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Dict

from tpujob.agent.base import Record, read_json, remove_file, write_json
from tpujob.agent.folders import PREFLIGHT
from tpujob.protocol import Plan, PreflightOrder

BOOT_ID = "/proc/sys/kernel/random/boot_id"
FRESH = 3600.0  #: seconds for which a check of the devices holds


def key_of(plan: Plan, order: PreflightOrder, facts: Record) -> Record:
    """What must be the same for an earlier check to hold. `facts`: what is installed where the program runs."""
    boot = ""
    with contextlib.suppress(OSError), open(BOOT_ID, encoding="ascii") as file:
        boot = file.read().strip()
    asked = {"slice": order["slice"], "chips": order["chips"], "hosts": order["hosts"]}
    bundles = [os.path.basename(path) for path in plan["bundles"]]
    return {**asked, "versions": facts.get("versions") or {}, "bundles": bundles, "boot": boot}


def is_fresh(key: Record) -> bool:
    """Whether a check of the same devices with the same code passed on this host a short while ago."""
    kept = read_json(PREFLIGHT)
    at = kept.get("at")
    recent = isinstance(at, (int, float)) and 0 <= time.time() - at < FRESH
    return recent and kept.get("passed") is True and kept.get("key") == key


def save(passed: bool, skipped: bool, key: Record, said: Dict[str, str], attempt: int) -> None:
    """Write down how a check ended. `skipped`: the devices were not asked, as an earlier check still holds; the time
    stays that check's."""
    at = read_json(PREFLIGHT).get("at") if passed and skipped else time.time()
    record = {"v": 1, "at": at, "passed": passed, "key": key, "checks": said}
    write_json(PREFLIGHT, dict(record, attempt=attempt))


def invalidate() -> None:
    """Have the next check ask the devices: an attempt ended in a way that they may be to blame for."""
    kept = read_json(PREFLIGHT)
    if kept.get("passed"):
        try:
            write_json(PREFLIGHT, dict(kept, passed=False))
        except OSError:  # no space; removing takes none
            remove_file(PREFLIGHT)
