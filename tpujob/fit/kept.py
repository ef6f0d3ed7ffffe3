"""What checks found, kept by what was checked: a file for each program, arguments, target and versions."""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, cast

from tpujob.config.files import put
from tpujob.fit.check import Finding, Wanted

#: arguments that change nothing that a check finds
_NO_MATTER = ("--steps=", "--seed=", "--lr=", "--checkpoint-every=", "--eval-every=", "--log-every=")  # fmt: skip


def keep(cache: Path, wanted: Wanted, versions: str, findings: Iterable[Finding]) -> None:
    """Of those that have a pace. `versions`: of the environment and of the programs."""
    for found in findings:
        if "pace" in found:
            file = _file(cache, wanted, found["target"], versions)
            file.parent.mkdir(parents=True, exist_ok=True)
            put(file, json.dumps(found))


def speeds(
    cache: Path,
    wanted: Wanted,
    targets: Iterable[str],
    versions: str,
    unit: Literal["steps", "tokens", "samples"],
) -> dict[str, float]:
    """Units a second on each of these targets that was checked with the same versions: in the middle of what is likely.
    A target of which nothing is known is left out."""
    found: dict[str, float] = {}
    for target in targets:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = _file(cache, wanted, target, versions).read_text(encoding="utf-8")
            one = cast("Finding", json.loads(text))
            units = {"steps": 1, "samples": one["batch"], "tokens": one["batch"] * one["tokens_per_row"]}  # fmt: skip
            short, long = one["pace"]["step"] if "pace" in one else (0.0, 0.0)
            if units[unit] and long:
                found[target] = units[unit] / ((short + long) / 2)
    return found


def _file(cache: Path, wanted: Wanted, target: str, versions: str) -> Path:
    options = sorted(o for o in wanted.options if not o.startswith(_NO_MATTER))
    key = json.dumps([wanted.workload, options, wanted.flags, target, versions])
    return cache / "checks" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
