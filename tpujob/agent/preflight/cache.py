"""What the newest pre-flight check on this host found, in `~/.tpujob/preflight.json`, and whether it still holds."""

from __future__ import annotations

import os
import time
from typing import Dict

from tpujob.agent.base import ROOT, Record, read_json, remove_file, write_json

KEPT = os.path.join(ROOT, "preflight.json")
FRESH = 3600.0  #: seconds for which a check of the devices holds


def key_of(plan: Record, facts: Record) -> Record:
    """What must be the same for an earlier check to hold. `facts`: what is installed where the program runs."""
    boot = ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        pass
    asked = {name: plan["preflight"][name] for name in ("slice", "chips", "hosts")}
    bundles = [os.path.basename(path) for path in plan["bundles"]]
    versions: Record = facts.get("versions") or {}
    return {**asked, "versions": versions, "bundles": bundles, "boot": boot}


def is_fresh(key: Record) -> bool:
    """Whether a check of the same devices with the same code passed on this host a short while ago."""
    kept = read_json(KEPT)
    at = kept.get("at")
    recent = isinstance(at, (int, float)) and 0 <= time.time() - at < FRESH
    return recent and kept.get("passed") is True and kept.get("key") == key


def keep(passed: bool, skipped: bool, key: Record, said: Dict[str, str], attempt: int) -> None:
    """Write down how a check ended. `skipped`: the devices were not asked, as an earlier check still holds; it does
    so from its own time on."""
    at = read_json(KEPT).get("at") if passed and skipped else time.time()
    record = {"v": 1, "at": at, "passed": passed, "key": key, "checks": said}
    write_json(KEPT, dict(record, attempt=attempt))


def doubt() -> None:
    """What was found no longer holds: an attempt has ended in a way that the devices may be to blame for."""
    kept = read_json(KEPT)
    if kept.get("passed"):
        try:
            write_json(KEPT, dict(kept, passed=False))
        except OSError:  # to remove it takes no room
            remove_file(KEPT)
