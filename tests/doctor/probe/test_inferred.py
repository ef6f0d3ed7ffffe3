"""Whatever the product infers names the probe that would settle it."""

from __future__ import annotations

import re
from pathlib import Path

from tpujob.doctor.probe.table import IDS, PROBES

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"probe:\s+(?:#:?\s+)?([a-z-]+)\)")


def places() -> list[tuple[str, str]]:
    """Each `inferred` with what follows it."""
    files = [
        *(ROOT / "tpujob").rglob("*.py"),
        *(ROOT / "workloads").rglob("*.py"),
        *(ROOT / "deploy").iterdir(),
    ]
    found: list[tuple[str, str]] = []
    for file in files:
        if file.is_dir() or "probe" in file.parts[-2]:
            continue
        text = file.read_text()
        for hit in re.finditer("inferred", text, re.IGNORECASE):
            line = text.count("\n", 0, hit.start()) + 1
            found.append((f"{file.relative_to(ROOT)}:{line}", text[hit.start() : hit.end() + 160]))
    return found


def test_every_inference_names_its_probe() -> None:
    assert len(places()) > 10
    for place, text in places():
        named = NAMED.search(text)
        assert named, f"{place} infers something, and does not say `(probe: ID)`"
        assert named[1] in IDS, f"{place} names {named[1]}, which is no probe"


def test_every_probe_says_what_it_settles() -> None:
    assert len(IDS) == len(PROBES)
    for probe in PROBES:
        assert probe.settles, probe.id
        assert all(not text.endswith(".") for text in probe.settles)
        assert re.fullmatch("[a-z]+(-[a-z]+)?", probe.id)
