"""Which process is ours: found again by what was noted of it, and never mistaken for another.

A pid alone proves nothing, as the kernel gives it out again; a pid and the moment at which it began do.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, cast


def note(path: Path, pid: int) -> None:
    """Write down a process that was just started, so that `find` knows it for certain."""
    path.write_text(json.dumps({"pid": pid, "start": _start_of(pid)}), encoding="utf-8")


def find(noted: Path, ready: Path) -> int | None:
    """The pid of the living process that was noted; or else of the one that wrote the ready file, started by hand.
    None: neither lives."""
    note = read(noted)
    if note and note.get("start") and note["start"] == _start_of(note["pid"]):
        return note["pid"]
    said = read(ready)
    if said is None or (note and note["pid"] == said["pid"]):
        return None
    return said["pid"] if _began_before(said["pid"], ready) else None


def read(path: Path) -> dict[str, Any] | None:
    """A JSON object that names a `pid`; None: there is none."""
    try:
        found: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    record = cast("dict[str, Any]", found)
    return record if isinstance(record.get("pid"), int) else None


def _start_of(pid: int) -> str:
    """When a living process began, in a form that no other process ever has; empty: it does not live."""
    ticks = _ticks(pid)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{ticks}" if ticks else ""


def _ticks(pid: int) -> int:
    """When a living process began, in clock ticks since the machine did; 0: it does not live."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return 0 if fields[0] in "ZX" else int(fields[19])


def _began_before(pid: int, path: Path) -> bool:
    """By the wall clock, which may have been set meanwhile: in doubt it is not ours."""
    ticks = _ticks(pid)
    try:
        written = path.stat().st_mtime
    except OSError:
        return False
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return ticks > 0 and boot + ticks / os.sysconf("SC_CLK_TCK") <= written + 1
