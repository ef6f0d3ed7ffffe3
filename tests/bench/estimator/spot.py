"""Histories of a zone's spot capacity: recorded ones where there are files, else generated ones of the same kind."""

import json
import math
import os
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from random import Random

#: a folder of `{"metadata": {"gap_seconds": 195}, "data": [0, 1, ...]}`: whether a slice could be had at each moment
TRACES = Path(os.environ.get("TPUJOB_SPOT_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
DAY = 86_400.0

#: of a made history: mean hours with capacity and without, for each zone; times are Weibull distributed, so that short
#: ones are many and long ones very long, as recorded histories have them
MADE = (
    (0.7, 3.6),
    (1.5, 1.7),
    (1.7, 2.0),
    (2.2, 1.6),
    (5.5, 1.8),
    (4.3, 2.0),
    (5.7, 0.8),
    (9.7, 1.1),
    (6.5, 0.8),
)
SHAPE = 0.55
SHORTEST = 500.0
DAYS = 45


@dataclass(frozen=True)
class Zone:
    """Changes between capacity and none, for ever: after its end a history begins again."""

    name: str
    changes: tuple[float, ...]  #: seconds; from each on it is the other way round
    begins: bool  #: with capacity
    length: float

    def has(self, at: float) -> bool:
        return self.begins ^ (bisect_right(self.changes, at % self.length) % 2 == 1)

    def changes_at(self, at: float) -> float:
        """Return the next time after `at` at which that changes."""
        rounds, place = divmod(at, self.length)
        while True:
            i = bisect_right(self.changes, place)
            if i < len(self.changes):
                return rounds * self.length + self.changes[i]
            rounds, place = rounds + 1, -1.0


def zones() -> tuple[list[Zone], str]:
    """Return nine zones, and where they come from."""
    recorded = sorted(TRACES.glob("*.json")) if TRACES.is_dir() else []
    if recorded:
        source = f"{len(recorded)} recorded histories of {TRACES}"
        return [_recorded(path) for path in recorded], source
    return [made(i) for i in range(len(MADE))], f"{len(MADE)} made histories"


def _recorded(path: Path) -> Zone:
    document = json.loads(path.read_text())
    gap, data = document["metadata"]["gap_seconds"], document["data"]
    changes = [i * gap for i in range(1, len(data)) if data[i] != data[i - 1]]
    return _even(path.name.partition("_")[0], changes, bool(data[0]), len(data) * gap)


def made(number: int) -> Zone:
    random = Random(f"spot zone {number}")
    at, available, changes = 0.0, True, list[float]()
    scale = [hours * 3600 / math.gamma(1 + 1 / SHAPE) for hours in MADE[number]]
    while at < DAYS * DAY:
        at += SHORTEST + random.weibullvariate(scale[0] if available else scale[1], SHAPE)
        changes.append(at)
        available = not available
    return _even(f"made-{number}", changes[:-1], True, changes[-1])


def _even(name: str, changes: list[float], begins: bool, length: float) -> Zone:
    """Return a zone whose history ends as it begins, so that it can be repeated."""
    if len(changes) % 2:
        changes = changes[:-1]
    return Zone(name, tuple(changes), begins, float(length))
